"""One synthetic feed as a pure function of its recipe and number; times are microseconds since its start."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ....core.rows.buckets import mix_bits
from ....core.rows.exact_integers import Int64s

UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

SLOT_ROWS = 4096
"""Rows that a slot holds: exactly for constant arrivals, on average for random ones."""

# The splitmix64 generator (Steele, Lea and Flood 2014): a Weyl sequence and a finalizer.
_GOLDEN = 0x9E3779B97F4A7C15
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
    return mix_bits(word)


@functools.cache
def _poisson_table() -> tuple[int, Floats]:
    # Ten standard deviations to each side; the rest has a chance below 1e-20.
    spread = 10 * math.isqrt(SLOT_ROWS)
    counts = range(SLOT_ROWS - spread, SLOT_ROWS + spread)
    chances = [math.exp(n * math.log(SLOT_ROWS) - SLOT_ROWS - math.lgamma(n + 1)) for n in counts]
    cumulative = np.cumsum(np.array(chances))
    return counts[0], cumulative[:-1] / cumulative[-1]


NEVER_US = 1 << 62
"""The elapsed time of rows that never come."""


@dataclasses.dataclass(frozen=True)
class Burst:
    """In the first `length_us` of every `every_us` the rate is `factor` times the mean; the rest makes up for it."""

    length_us: int
    every_us: int
    factor: float


class RateProfile:
    """The rate of one feed over time.

    This map stretches random arrivals at rate one (the time change of a Poisson process). So bursts and silences cost
    nothing, and any stretch can be made alone. `rate` is the mean in rows per second outside of silences. `silences`
    are disjoint, increasing intervals [from, to) of elapsed microseconds; the last may have no end. The feed's clock
    stops in them, so its rows come later.
    """

    def __init__(
        self, rate: float, burst: Burst | None = None, silences: Sequence[tuple[int, int | None]] = ()
    ) -> None:
        self._rate = rate
        self._burst = burst
        starts: list[float] = []
        pauses: list[float] = []
        before = 0.0
        for begin, end in silences:
            starts.append(begin - before)
            before += float(NEVER_US) if end is None else end - begin
            pauses.append(before)
        self._starts = np.array(starts)
        self._pauses = np.array([0.0, *pauses])

    def elapsed_us(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the microseconds until `rows` (real, not whole) have come, monotonic; :data:`NEVER_US` if never."""
        active = self._active_us(rows)
        if len(self._starts):
            active = active + self._pauses[np.searchsorted(self._starts, active, side="right")]
        return np.minimum(active, float(NEVER_US)).astype(np.int64)

    def _active_us(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        burst = self._burst
        if burst is None:
            return rows * 1e6 / self._rate
        per_period = self._rate * burst.every_us / 1e6
        in_burst = per_period * min(1.0, burst.factor * burst.length_us / burst.every_us)
        periods = np.floor(rows / per_period)
        rest = np.clip(rows - periods * per_period, 0.0, per_period)  # rounding must not make time run backwards
        within = rest / in_burst * burst.length_us
        if in_burst < per_period:
            after = burst.length_us + (rest - in_burst) / (per_period - in_burst) * (burst.every_us - burst.length_us)
            within = np.where(rest < in_burst, within, after)
        return periods * burst.every_us + within


# Slots made at a time: enough to spread NumPy's cost per call, few enough to stay in the cache.
_SLOTS_AT_ONCE = 16
# Slots counted at a time when looking ahead.
_SLOTS_COUNTED = 1 << 16
# A row's counter is its slot in the high bits and its place in the slot in the low ones.
_INDEX_BITS = np.uint64(16)
# Arrivals within a slot are drawn on a grid this fine.
_GRID_BITS = 44
_ARRIVAL, _COUNT, _KEY, _VALUE, _LATENESS, _PAYLOAD = range(6)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All that determines the rows; made by :meth:`~.options.SyntheticOptions.recipe`."""

    seed: int
    rows_per_second: float  # of all feeds together
    keys: int
    skew: float = 0.0
    rates: tuple[float, ...] | None = None  # relative shares of the keys; None for a Zipf distribution with `skew`
    take_turns: bool = False  # keys 0, 1, 2, … in turn instead of at random
    at_random: bool = False  # Poisson arrivals instead of a constant pace
    burst: Burst | None = None
    disorder: str = "none"
    disorder_width_us: int = 0
    feeds: int = 1
    # per feed, (from, to) in microseconds since the start; no end if None
    silences: tuple[tuple[tuple[int, int | None], ...], ...] = ()
    payload_bytes: int = 0
    total_rows: int | None = None  # of all feeds together


@dataclasses.dataclass(frozen=True)
class FeedPoint:
    """A point between two rows of a feed: `index` rows into a slot, `row` rows from the start."""

    slot: int = 0
    index: int = 0
    row: int = 0


class RowRun:
    """Neighbouring rows in arrival order; columns are made on access.

    `elapsed_us` are arrivals since the start, never decreasing. `first_row` counts from the start of the feed.
    """

    def __init__(self, stream: SyntheticStream, counters: UInt64s, elapsed_us: Int64s, first_row: int) -> None:
        self._stream = stream
        self._counters = counters
        self.elapsed_us = elapsed_us
        self.first_row = first_row

    def __len__(self) -> int:
        return len(self.elapsed_us)

    def key(self) -> Int64s:
        recipe = self._stream.recipe
        if recipe.take_turns:
            return np.arange(self.first_row, self.first_row + len(self), dtype=np.int64) % recipe.keys
        draws = self._stream.draws(_KEY)
        if not recipe.skew and recipe.rates is None:
            return draws.below(self._counters, recipe.keys)
        return _key_chooser(recipe.keys, recipe.skew, recipe.rates)(draws.uniform(self._counters))

    def time_us(self) -> Int64s:
        """Return event times since the start, before the arrival by up to the disorder's width (twice for `block`)."""
        recipe = self._stream.recipe
        width = recipe.disorder_width_us
        if recipe.disorder == "none":
            return self.elapsed_us
        draws = self._stream.draws(_LATENESS)
        if recipe.disorder == "band":
            return self.elapsed_us - draws.below(self._counters, width + 1)
        # Uniform and independent within its block: what a shuffle of a block's rows comes to, without holding a block.
        return (self.elapsed_us // width - 1) * width + draws.below(self._counters, width)

    def value(self) -> npt.NDArray[np.float64]:
        return self._stream.draws(_VALUE).uniform(self._counters)

    def payload(self) -> npt.NDArray[np.uint8]:
        """Return random bytes, one line of the recipe's width per row."""
        width = self._stream.recipe.payload_bytes
        words = -(-width // 8)
        numbered = self._counters[:, None] * np.uint64(words) + np.arange(words, dtype=np.uint64)
        return self._stream.draws(_PAYLOAD).words(numbered).astype("<u8").view(np.uint8)[:, :width]


class SyntheticStream:
    """One feed, in *slots* of about :data:`~.draws.SLOT_ROWS` rows, each a function of (seed, feed, slot) alone.

    Guarantee: :meth:`between` yields the same rows however a stretch is cut, in any process.
    """

    def __init__(self, recipe: Recipe, feed: int = 0) -> None:
        self.recipe = recipe
        self._feed = feed
        silences = recipe.silences[feed] if feed < len(recipe.silences) else ()
        self._profile = RateProfile(recipe.rows_per_second / recipe.feeds, recipe.burst, silences)
        total = recipe.total_rows
        self.total_rows = None if total is None else total // recipe.feeds + (feed < total % recipe.feeds)

    def draws(self, column: int) -> Draws:
        return Draws(self.recipe.seed, self._feed, column)

    def ended(self, place: FeedPoint) -> bool:
        return place.row == self.total_rows

    def mean_rows(self, until_us: int) -> float:
        """Return about how many rows come in the first `until_us` microseconds, without silences and bursts."""
        mean = max(until_us, 0) * self.recipe.rows_per_second / self.recipe.feeds / 1e6
        return mean if self.total_rows is None else min(mean, float(self.total_rows))

    def take(self, start: FeedPoint, until_us: int | None = None, limit: int | None = None) -> FeedPoint:
        """Return the last point after `start` before which all rows have come by `until_us`, at most `limit` rows."""
        until = NEVER_US - 1 if until_us is None else until_us
        last = self._last_slot(until)
        if last < start.slot:
            return start
        wanted = float("inf") if limit is None else limit
        if self.total_rows is not None:
            wanted = min(wanted, self.total_rows - start.row)
        slot, index, row = start.slot, start.index, start.row
        while row - start.row < wanted:
            slots = np.arange(slot, min(last + 1, slot + _SLOTS_COUNTED), dtype=np.int64)
            if not len(slots):
                break
            counts = self._counts(slots)
            if slots[-1] == last:
                arrived = int(np.searchsorted(self._arrivals(slots[-1:])[0], until, side="right"))
                counts[-1] = max(arrived, index) if slot == last else arrived  # a clock set back takes nothing back
            ends = np.cumsum(counts) - index
            enough = int(np.searchsorted(ends, wanted - (row - start.row), side="left"))
            if enough < len(slots):
                taken = int(wanted) - (row - start.row)
                index = taken - (int(ends[enough - 1]) if enough else -index)
                return self._normal(FeedPoint(int(slots[enough]), index, row + taken))
            row += int(ends[-1])
            slot, index = int(slots[-1]) + 1, 0
            if slots[-1] == last:
                return self._normal(FeedPoint(last, int(counts[-1]), row))
        return FeedPoint(slot, index, row)

    def between(self, start: FeedPoint, stop: FeedPoint, most: int | None = None) -> Iterator[RowRun]:
        """Yield the rows from one place to another, in pieces of at most `most` rows, by default all made at once."""
        row, at_once = start.row, _SLOTS_AT_ONCE
        for first in range(start.slot, stop.slot + (stop.index > 0), at_once):
            slots = np.arange(first, min(first + at_once, stop.slot + (stop.index > 0)), dtype=np.int64)
            elapsed, counters = self._arrivals(slots)
            low = start.index if first == start.slot else 0
            high = len(elapsed)
            if slots[-1] == stop.slot:
                high -= int(self._counts(slots[-1:])[0]) - stop.index
            for cut in range(low, high, most or high):
                end = min(high, cut + (most or high))
                yield RowRun(self, counters[cut:end], elapsed[cut:end], row)
                row += end - cut

    def _counts(self, slots: Int64s) -> Int64s:
        if not self.recipe.at_random:
            return np.full(len(slots), SLOT_ROWS, dtype=np.int64)
        return slot_counts(self.draws(_COUNT), slots)

    def _arrivals(self, slots: Int64s) -> tuple[Int64s, UInt64s]:
        """Return the arrivals of all rows of neighbouring slots, and the rows' counters."""
        counts = self._counts(slots)
        first = np.cumsum(counts) - counts
        index = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(first, counts)
        slot = np.repeat(slots, counts)
        counters = (slot.astype(np.uint64) << _INDEX_BITS) + index.astype(np.uint64)
        if not self.recipe.at_random:
            rows = (slot * SLOT_ROWS + index).astype(np.float64)
        else:
            # Given their number, the rows of a Poisson process lie uniformly. All slots are sorted in one go, since a
            # slot's number, relative to the first, is above the grid's bits.
            order = (slot - slots[0]) << _GRID_BITS
            order += (self.draws(_ARRIVAL).words(counters) >> np.uint64(64 - _GRID_BITS)).astype(np.int64)
            order.sort()
            within = (order & ((1 << _GRID_BITS) - 1)).astype(np.float64) * (SLOT_ROWS / 2.0**_GRID_BITS)
            rows = slot.astype(np.float64) * SLOT_ROWS + within
        return self._profile.elapsed_us(rows), counters

    def _last_slot(self, until_us: int) -> int:
        """Return the last slot that begins at `until_us` or before; -1 if none does."""

        def begins(slot: int) -> int:
            return int(self._profile.elapsed_us(np.array([float(slot * SLOT_ROWS)]))[0])

        if until_us < begins(0):
            return -1
        high = 1
        while high < 1 << 44 and begins(high) <= until_us:
            high *= 2
        low = high // 2 if high > 1 else 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if begins(middle) <= until_us else (low, middle)
        return low

    def _normal(self, place: FeedPoint) -> FeedPoint:
        """Return the same place, at the start of the next slot rather than at the end of one."""
        if place.index == int(self._counts(np.array([place.slot], dtype=np.int64))[0]):
            return FeedPoint(place.slot + 1, 0, place.row)
        return place


@functools.lru_cache(maxsize=4)
def _key_chooser(keys: int, skew: float, rates: tuple[float, ...] | None) -> KeysByShare:
    return KeysByShare(zipf_shares(keys, skew) if rates is None else np.array(rates) / sum(rates))


def synthetic_arrivals(recipe: Recipe, until_us: int) -> tuple[Int64s, Int64s]:
    """Return arrivals (microseconds since the start, never decreasing) and key numbers of a recipe's first feed."""
    stream = SyntheticStream(recipe)
    pieces = list(stream.between(FeedPoint(), stream.take(FeedPoint(), until_us)))
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([none, *(piece.elapsed_us for piece in pieces)]),
        np.concatenate([none, *(piece.key() for piece in pieces)]),
    )
