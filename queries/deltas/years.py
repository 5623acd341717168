"""Times of windows and changes that no table can hold: outside the years 1 to 9999."""

from __future__ import annotations

import numpy as np

from ...conf.errors import QueryError
from ...core.rows.exact_integers import Int64s
from ..expressions.calendar import FIRST_DAY, LAST_DAY

__all__ = ["check_years"]

_DAY_US = 86_400_000_000
_FIRST, _LAST = FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1


def check_years(times: Int64s, what: str) -> None:
    """Raise QueryError if a time in microseconds is outside the years 1 to 9999. ``what`` begins the message."""
    if len(times) == 0 or (times.min() >= _FIRST and times.max() <= _LAST):
        return
    outside = int(times[(times < _FIRST) | (times > _LAST)][0])
    raise QueryError(
        f"{what} at {np.datetime64(outside, 'us')}",
        expected="a time in the years 1 to 9999",
        hint="take rows whose event time is so near these limits out of the stream, with where() before "
        "queries.stream()",
    )
