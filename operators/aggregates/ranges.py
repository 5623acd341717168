"""States of ranges of states, such as windows that are runs of panes."""

from __future__ import annotations

from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .algebra import Aggregates
from .groups import Groups
from .parts import Part, State

__all__ = ["Ranges", "combined_ranges", "prefixes"]

Int64s = npt.NDArray[np.int64]


def combined_ranges(aggregates: Aggregates, state: pa.Table, low: Int64s, high: Int64s) -> pa.Table:
    """Return the state of each range ``low[i] <= row < high[i]`` of states; a range may be empty.

    At worst it costs two combined states for each state, and 2·log₂ n for each range of n states: see :class:`Ranges`.
    """
    return aggregates.table([Ranges(part, columns).of(low, high) for part, columns in aggregates.split(state)])


class Ranges:
    """States of one part, prepared for many queries of ranges.

    Integer sums are differences of running sums. Minima and maxima are found by :class:`Overlapping` if it fits into
    memory. Any other state is combined from a tree of halves.
    """

    def __init__(self, part: Part, state: State) -> None:
        self._part = part
        self._running = part.running(state) if part.exact else None
        self._overlapping = part.overlapping(state)
        self._levels: list[State] = [state]

    def of(self, low: Int64s, high: Int64s) -> State:
        """Return the state of each range ``low[i] <= row < high[i]``."""
        high = np.maximum(high, low)
        if self._running is not None:
            return self._part.between(self._running, low, high)
        if self._overlapping is not None and self._overlapping.fits(int((high - low).max(initial=0))):
            return [self._overlapping.of(low, high)]
        ranges = len(low)
        found: list[State] = []
        owner: list[Int64s] = []
        at = np.arange(ranges)
        for level in count():
            some = low < high
            low, high, at = low[some], high[some], at[some]
            if len(at) == 0:
                break
            state = self._level(level)
            odd = low & 1 == 1
            found.append(_taken(state, low[odd]))
            owner.append(at[odd])
            low = low + odd
            odd = (high & 1 == 1) & (low < high)
            found.append(_taken(state, high[odd] - 1))
            owner.append(at[odd])
            low, high = low >> 1, (high - odd) >> 1
        columns = [pa.concat_arrays(list(each)) for each in zip(*found, strict=True)] or _taken(self._levels[0], at)
        codes = np.concatenate(owner) if owner else at
        return self._part.combine(columns, Groups(codes, ranges))

    def _level(self, number: int) -> State:
        while len(self._levels) <= number:
            last = self._levels[-1]
            size = len(last[0])
            self._levels.append(self._part.combine(last, Groups(np.arange(size) >> 1, -(-size // 2))))
        return self._levels[number]


def _taken(state: State, at: Int64s) -> State:
    which = pa.array(at)
    return [each.take(which) for each in state]


def prefixes(aggregates: Aggregates, state: pa.Table, codes: Int64s) -> pa.Table:
    """Return for each state the combined state of its group, up to and including it.

    `codes` holds each state's group; the states of one group are adjacent.
    """
    n = len(codes)
    if n == 0:
        return state
    begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return aggregates.table([_prefixes(part, columns, begins, n) for part, columns in aggregates.split(state)])


def _prefixes(part: Part, state: State, begins: Int64s, n: int) -> State:
    one_by_one = part.prefixes(state, begins)
    if one_by_one is not None:
        return one_by_one
    rank = np.arange(n) - np.repeat(begins, np.diff(np.append(begins, n)))
    step, longest = 1, int(rank.max()) + 1
    rows = np.arange(n)
    while step < longest:
        # Combine each state with the one `step` before it, which covers as many states.
        behind = rows[rank >= step]
        both = [pa.concat_arrays(each) for each in zip(state, _taken(state, behind - step), strict=True)]
        state = part.combine(both, Groups(np.concatenate([rows, behind]), n))
        step *= 2
    return state
