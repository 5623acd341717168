"""States of ranges: of windows that are runs of panes, over states in the order of groups and panes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .algebra import Aggregates

__all__ = ["combined_ranges", "prefixes"]

Int64s = npt.NDArray[np.int64]


def combined_ranges(aggregates: Aggregates, state: pa.Table, low: Int64s, high: Int64s) -> pa.Table:
    """Return the state of each range of states.

    Parameters
    ----------
    aggregates : Aggregates
        Aggregates of any kind: nothing is retracted.
    state : pyarrow.Table
        States in an order of the caller's.
    low, high : int64 arrays of length ranges
        Range i consists of the states ``low[i] <= row < high[i]``; it may be empty.

    Returns
    -------
    pyarrow.Table
        A state for each range.

    Notes
    -----
    Ranges are put together from a tree of halves, level by level: each state is combined twice on average to make the
    tree, and each range of n states takes up to 2·log₂ n of its nodes.
    """
    ranges = len(low)
    low, high = low.copy(), np.maximum(high, low)
    found: list[pa.Table] = []
    owner: list[Int64s] = []
    level = state
    while True:
        odd = np.flatnonzero((low & 1 == 1) & (low < high))
        found.append(level.take(pa.array(low[odd])))
        owner.append(odd)
        low[odd] += 1
        odd = np.flatnonzero((high & 1 == 1) & (low < high))
        high[odd] -= 1
        found.append(level.take(pa.array(high[odd])))
        owner.append(odd)
        live = low < high
        if not live.any():
            break
        low, high = low >> 1, high >> 1
        pairs = -(-level.num_rows // 2)
        level = aggregates.combine(level, np.arange(level.num_rows) >> 1, pairs)
    return aggregates.combine(pa.concat_tables(found), np.concatenate(owner), ranges)


def prefixes(aggregates: Aggregates, state: pa.Table, codes: Int64s) -> pa.Table:
    """Return for each state the combined state of its group, up to and including it.

    Parameters
    ----------
    aggregates : Aggregates
    state : pyarrow.Table
    codes : int64 array of length states
        The group of each state; the states of one group are adjacent.
    """
    n = len(codes)
    if n == 0:
        return state
    begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    rank = np.arange(n) - np.repeat(begins, np.diff(np.append(begins, n)))
    step, longest = 1, int(rank.max()) + 1
    rows = np.arange(n)
    while step < longest:
        # Each state takes up the one `step` before it, which stands for as many again.
        behind = rows[rank >= step]
        both = pa.concat_tables([state, state.take(pa.array(behind - step))])
        state = aggregates.combine(both, np.concatenate([rows, behind]), n)
        step *= 2
    return state
