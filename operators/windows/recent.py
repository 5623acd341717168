"""Which window of a key is its most recent update (tr620 §6.2), on columns of rows.

Lazy semantics deliver the latest fully arrived window, eager ones the latest started window. Both rules look at one row
at a time, so a key's answer is the greatest id among its rows, and neither the order of arrival nor the split into
batches matters.
"""

from __future__ import annotations

import numpy as np

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Whole, as_int64
from .kinds import Windows

__all__ = ["NONE", "latest_fully_arrived", "latest_per_key", "latest_started"]

NONE = LOWEST
"""Instead of an id: there is no such window."""


def latest_started(windows: Windows, x: Whole) -> Int64s:
    """Return the last window to begin among those that hold each row: the report's MRU rule for eager semantics.

    Parameters
    ----------
    windows : Windows
        Windows that begin at different times.
    x : int64 array of length rows
        The rows' windowing values, or their panes with the windows over these.

    Returns
    -------
    int64 array of length rows
        Window-ids; :data:`NONE` for a row between two windows.

    Raises
    ------
    OptionError
        The windows all begin with the stream.
    """
    first, last = windows.wids(x)
    if (last == HIGHEST).any():
        raise OptionError(
            "the latest window to start among landmark windows, which all begin with the stream",
            expected="sliding or tumbling windows",
        )
    return np.where(first <= last, last, NONE)


def latest_fully_arrived(windows: Windows, x: Whole, through: Whole) -> Int64s:
    """Return the latest of the fully arrived windows that hold each row: the report's MRU rule for lazy semantics.

    Parameters
    ----------
    windows : Windows
    x : int64 array of length rows
        The rows' windowing values, or their panes with the windows over these.
    through : int, or int64 array of length rows
        The greatest window that has fully arrived.

    Returns
    -------
    int64 array of length rows
        Window-ids; :data:`NONE` for a row of which no window has fully arrived.
    """
    first, last = windows.wids(x)
    newest = np.minimum(last, as_int64(through))
    return np.where(first <= newest, newest, NONE)


def latest_per_key(values: Int64s, codes: Int64s, keys: int) -> Int64s:
    """Return the greatest of each key's numbers: windows from the functions above, or panes.

    Parameters
    ----------
    values : int64 array of length rows
    codes : int64 array of length rows
        Each row's key, below `keys`.

    Returns
    -------
    int64 array of length keys
        :data:`NONE` for a key without a row.
    """
    latest = np.full(keys, NONE, dtype=np.int64)
    np.maximum.at(latest, codes, values)
    return latest
