"""The pairs of Delta types of which one has every value of the other."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["widens"]

_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def widens(narrow: Any, wide: Any) -> bool:
    """Return True if the wide type has every value of the narrow one, and readers of Parquet can widen it."""
    if narrow in _WHOLE and wide in _WHOLE:
        return _WHOLE.index(narrow) < _WHOLE.index(wide)
    if (narrow, wide) == ("float", "double"):
        return True
    one, other = (_DECIMAL.fullmatch(kind) if isinstance(kind, str) else None for kind in (narrow, wide))
    if one is None or other is None:
        return False
    (digits, scale), (more, more_scale) = (tuple(map(int, found.groups())) for found in (one, other))
    return scale == more_scale and more > digits  # with another scale Polars refuses the files from before
