"""The numbers of rows from which their windows follow, and pairs of rows and windows."""

from __future__ import annotations

import numpy as np

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, Int64s

__all__ = ["MOST_PAIRS", "expand", "ranks", "ranks_by_time"]

MOST_PAIRS = 1 << 28
"""The most (row, window) pairs that are made at once: 4 GB."""


def expand(first: Int64s, last: Int64s, through: int | None = None) -> tuple[Int64s, Int64s]:
    """Return a (row, window) pair for each window of each row, in the order of rows, then of windows.

    `through` is the last window to return. Landmark windows, which have no last id, require it.
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
    """Return each row's rank in its partition, from 0 over the whole stream, and the rows that each partition has now.

    Rows are in the order that counts; `started` is the rows that each partition had before. The second result is
    `started` for the next rows, and each partition's bound: every row of a lower rank has arrived.
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(started)).astype(np.int64)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) + np.repeat(started - (np.cumsum(sizes) - sizes), sizes)
    return rank, started + sizes


def ranks_by_time(x: Int64s, before: int = 0) -> Int64s:
    """Return each row's rank by x, ties by arrival, after `before` rows; final for rows below the low-watermark."""
    rank = np.empty(len(x), dtype=np.int64)
    rank[np.argsort(x, kind="stable")] = np.arange(before, before + len(x))
    return rank
