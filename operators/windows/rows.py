"""Numbers that rows need before their windows can be named, and rows paired with their windows."""

from __future__ import annotations

import numpy as np

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, Int64s

__all__ = ["MOST_PAIRS", "expand", "ranks", "ranks_by_time"]

MOST_PAIRS = 1 << 28
"""The most (row, window) pairs that are made at once: 4 GB."""


def expand(first: Int64s, last: Int64s, through: int | None = None) -> tuple[Int64s, Int64s]:
    """Return a (row, window) pair for each window of each row.

    Parameters
    ----------
    first, last : int64 arrays of length rows
        First and last window-ids from `wids`.
    through : int, optional
        The last window to return; required if a row's windows have no last id (landmark).

    Returns
    -------
    row, wid : int64 arrays of length pairs
        Pairs in the order of rows, then of windows.

    Raises
    ------
    OptionError
        There would be more than :data:`MOST_PAIRS` pairs.
    """
    if through is not None:
        last = np.minimum(last, through)
    # The distance of two int64 always fits 64 bits without a sign.
    more = last.view(np.uint64) - first.view(np.uint64)
    some = last >= first
    pairs = more[some].sum(dtype=np.float64) + np.count_nonzero(some)
    if pairs > MOST_PAIRS:
        endless = bool((last == HIGHEST).any())
        raise OptionError(
            f"{len(first)} rows are in {pairs:.3g} windows",
            expected=f"at most {MOST_PAIRS} pairs of a row and a window at once",
            hint="give the last window that is wanted" if endless else "use panes, a longer SLIDE, or smaller batches",
        )
    number = np.where(some, more.view(np.int64) + 1, 0)
    row = np.repeat(np.arange(len(first)), number)
    before = np.cumsum(number) - number
    return row, np.arange(len(row)) - (before - first)[row]


def ranks(codes: Int64s, started: Int64s) -> tuple[Int64s, Int64s]:
    """Return each row's rank in its partition, counted from 0 over the whole stream.

    Parameters
    ----------
    codes : int64 array of length rows
        The partition of each row, below ``len(started)``; rows are in the order that counts (of arrival, for row
        numbers).
    started : int64 array of length partitions
        How many rows each partition had before.

    Returns
    -------
    rank : int64 array of length rows
    counted : int64 array of length partitions
        How many rows each partition has now: `started` for the next rows. It is also each partition's bound: every row
        of a lower rank has arrived.
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(started)).astype(np.int64)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) + np.repeat(started - (np.cumsum(sizes) - sizes), sizes)
    return rank, started + sizes


def ranks_by_time(x: Int64s, before: int = 0) -> Int64s:
    """Return each row's rank in the order of x, ties in the order of arrival, counted from 0 over the whole stream.

    Parameters
    ----------
    x : int64 array of length rows
        Values in the order of arrival.
    before : int
        How many rows come before all of these. Ranks are final for rows below the low-watermark.
    """
    rank = np.empty(len(x), dtype=np.int64)
    rank[np.argsort(x, kind="stable")] = np.arange(before, before + len(x))
    return rank
