# pyarrow makes most of its compute functions when it is imported; a type checker cannot see them.
from typing import Any

def __getattr__(name: str) -> Any: ...
