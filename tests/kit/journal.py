"""What goes through Spark's journal."""

import json
from typing import Any


def through_json(value: Any) -> Any:
    """A position, or an offset, as it is read after it was written."""
    return json.loads(json.dumps(value))
