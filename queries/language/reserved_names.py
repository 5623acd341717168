"""Names that no column of a query may have, as evaluation and tables use them."""

from __future__ import annotations

__all__ = ["FREE_NAMES", "is_reserved"]

FREE_NAMES = "a name that does not begin with two underscores or with _upstream"


def is_reserved(name: str) -> bool:
    """Return whether evaluation or tables use a name themselves."""
    return name.lower().startswith(("__", "_upstream"))
