"""The most recent window of a key (tr620 §6.2), on columns of rows."""

from __future__ import annotations

import numpy as np

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Whole, as_int64
from .kinds import Windows

__all__ = ["NONE", "latest_fully_arrived", "latest_per_key", "latest_started"]

NONE = LOWEST
"""The id for no window."""


def latest_started(windows: Windows, x: Whole) -> Int64s:
    """Return the last window to begin among those of each row: the report's MRU rule for eager semantics.

    `x` are windowing values, or panes with the windows over these. A row between two windows has :data:`NONE`. Landmark
    windows are refused, since all begin with the stream.
    """
    first, last = windows.wids(x)
    if (last == HIGHEST).any():
        raise OptionError(
            "the latest window to start among landmark windows, which all begin with the stream",
            expected="sliding or tumbling windows",
        )
    return np.where(first <= last, last, NONE)


def latest_fully_arrived(windows: Windows, x: Whole, through: Whole) -> Int64s:
    """Return the latest window of each row up to `through`: the report's MRU rule for lazy semantics.

    `through` is the greatest window that has fully arrived. `x` are windowing values, or panes with the windows over
    these. A row without such a window has :data:`NONE`.
    """
    first, last = windows.wids(x)
    newest = np.minimum(last, as_int64(through))
    return np.where(first <= newest, newest, NONE)


def latest_per_key(values: Int64s, codes: Int64s, keys: int) -> Int64s:
    """Return the greatest of each key's values, which are windows or panes; :data:`NONE` for a key without a row.

    A key's most recent window is the greatest of its rows', so neither the order of arrival nor the batches matter.
    """
    latest = np.full(keys, NONE, dtype=np.int64)
    np.maximum.at(latest, codes, values)
    return latest
