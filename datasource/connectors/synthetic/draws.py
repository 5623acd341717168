"""Random numbers by counter: the i-th number of a column is a function of (seed, feed, column, i) alone."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

__all__ = ["SLOT_ROWS", "Draws", "KeysByShare", "slot_counts", "zipf_shares"]

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

SLOT_ROWS = 4096
"""Rows that a slot holds: exactly for constant arrivals, on average for random ones."""

# The splitmix64 generator (Steele, Lea and Flood 2014): a Weyl sequence and a finalizer.
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


class Draws:
    """The random numbers of one column; columns are independent.

    Arrivals and counts use only integer operations and single IEEE multiplications and divisions, so that the machines
    of a mixed cluster agree on them.
    """

    def __init__(self, seed: int, feed: int, column: int) -> None:
        key = 0
        for part in (seed, feed, column):
            word = np.array([(key ^ (part & _MASK)) & _MASK], dtype=np.uint64)
            key = int(_mixed(word, np.uint64(_GOLDEN))[0])
        self._key = np.uint64(key)

    def words(self, counters: UInt64s) -> UInt64s:
        """Return a uniform 64-bit number for each counter."""
        return _mixed(counters, self._key)

    def uniform(self, counters: UInt64s) -> Floats:
        """Return a number in [0, 1) for each counter."""
        return (self.words(counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, counters: UInt64s, bound: int) -> Int64s:
        """Return a whole number in [0, `bound`) for each counter."""
        scaled = (self.uniform(counters) * bound).astype(np.int64)
        return np.minimum(scaled, bound - 1, out=scaled)  # the product may round up to the bound


def slot_counts(draws: Draws, slots: Int64s) -> Int64s:
    """Return the number of rows in each slot for random arrivals: Poisson with mean :data:`SLOT_ROWS`."""
    low, cumulative = _poisson_table()
    return low + np.searchsorted(cumulative, draws.uniform(slots.astype(np.uint64)), side="right")


def zipf_shares(keys: int, skew: float) -> Floats:
    """Return each key's share of the rows: key k has one proportional to 1 / (k + 1)^skew."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return weights / weights.sum()


class KeysByShare:
    """A draw of key numbers with given shares (sum 1), by a guide into the cumulative shares (Chen and Asau 1974)."""

    def __init__(self, shares: Floats) -> None:
        self._cumulative = np.cumsum(shares)
        self._cumulative /= self._cumulative[-1]
        self._last = int(np.flatnonzero(shares)[-1])
        self._cells = min(max(len(shares), 1024), 1 << 20)
        edges = np.arange(self._cells, dtype=np.float64) / self._cells
        self._guide = np.searchsorted(self._cumulative, edges, side="right")

    def __call__(self, uniform: Floats) -> Int64s:
        chosen = self._guide[(uniform * self._cells).astype(np.int64)]
        behind = np.flatnonzero(self._cumulative[chosen] <= uniform)
        for _ in range(4):
            if not len(behind):
                break
            chosen[behind] += 1
            behind = behind[self._cumulative[chosen[behind]] <= uniform[behind]]
        if len(behind):
            chosen[behind] = np.searchsorted(self._cumulative, uniform[behind], side="right")
        return np.minimum(chosen, self._last, out=chosen)


def _mixed(counters: UInt64s, key: np.uint64) -> UInt64s:
    word = counters * np.uint64(_GOLDEN)
    word += key
    word ^= word >> np.uint64(30)
    word *= _MIX_1
    word ^= word >> np.uint64(27)
    word *= _MIX_2
    word ^= word >> np.uint64(31)
    return word


@functools.cache
def _poisson_table() -> tuple[int, Floats]:
    # Ten standard deviations to each side; the rest has a chance below 1e-20.
    spread = 10 * math.isqrt(SLOT_ROWS)
    counts = range(SLOT_ROWS - spread, SLOT_ROWS + spread)
    chances = [math.exp(n * math.log(SLOT_ROWS) - SLOT_ROWS - math.lgamma(n + 1)) for n in counts]
    cumulative = np.cumsum(np.array(chances))
    return counts[0], cumulative[:-1] / cumulative[-1]
