"""Staleness figures, their averages and their bounds (tr620 §3.3, §5.1)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ...core.rows.exact_integers import Int64s

Floats = npt.NDArray[np.float64]

_US = 1e6


@dataclasses.dataclass(frozen=True)
class Ramps:
    """Stretches of time in which a key's staleness grew as time did, from `low_us` to `high_us`.

    A key is stale from the arrival of its oldest pending update until a result covers it. For application staleness,
    that is its commit; for queue staleness, the end of its wait in the queue. So each result adds one ramp, and no
    sampling is needed.
    """

    low_us: Int64s
    high_us: Int64s

    @classmethod
    def together(cls, parts: list[Ramps]) -> Ramps:
        none = np.empty(0, dtype=np.int64)
        return cls(
            np.concatenate([none, *(part.low_us for part in parts)]),
            np.concatenate([none, *(part.high_us for part in parts)]),
        )

    def areas(self) -> Floats:
        """Return the area under each ramp, staleness over time, in square seconds."""
        # The product of sum and difference: of two large squares little would remain.
        return (self.high_us - self.low_us) / _US * ((self.high_us + self.low_us) / _US) / 2

    def quantiles_s(self, q: Floats | list[float], key_seconds: float) -> Floats:
        """Return exact quantiles of staleness in seconds over `key_seconds` (keys times seconds); 0 outside ramps."""
        if len(self.low_us) == 0:
            return np.zeros(len(q))
        value = np.concatenate([self.low_us, self.high_us]) / _US
        slope = np.repeat([1.0, -1.0], len(self.low_us))
        order = np.argsort(value, kind="stable")
        value, slope = value[order], np.cumsum(slope[order])
        below = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(value))])
        # Where no ramp is, the sum stands still, and the first value that reaches a share is its quantile.
        wanted = np.asarray(q) * key_seconds - (key_seconds - below[-1])
        at = np.clip(np.searchsorted(below, wanted, side="left"), 0, len(value) - 1)
        left = np.maximum(at - 1, 0)
        rise = below[at] - below[left]
        part = np.divide(wanted - below[left], rise, out=np.ones_like(rise), where=rise > 0)
        found = value[left] + np.clip(part, 0.0, 1.0) * (value[at] - value[left])
        return np.where(wanted <= 0, 0.0, found)


@dataclasses.dataclass(frozen=True)
class IntervalStaleness:
    """Staleness in one interval, such as a batch, in seconds.

    `mean` to `max` are over the applied results, from the oldest arrival that each represents to its commit; 0 if
    there are none.
    """

    mean: float
    p50: float
    p99: float
    max: float
    applied: int  # results
    superseded: int  # updates that a newer one of their key replaced
    pending: int  # keys that wait at the end
    oldest: float  # age of the longest-waiting key

    @classmethod
    def of(
        cls,
        first_arrival_us: Int64s,
        commit_us: Int64s | int,
        *,
        now_us: int,
        pending_first_us: Int64s | None = None,
        superseded: int = 0,
    ) -> IntervalStaleness:
        """Measure an interval that ends at `now_us`; `pending_first_us` is the first arrival of each waiting key."""
        ages = np.maximum(commit_us - first_arrival_us, 0) / _US  # a clock set back makes nothing younger than new
        mean, p50, p99, most = _figures(ages)
        pending = np.empty(0, dtype=np.int64) if pending_first_us is None else pending_first_us
        oldest = max((now_us - int(pending.min())) / _US, 0.0) if len(pending) else 0.0
        return cls(mean, p50, p99, most, len(ages), superseded, len(pending), oldest)


@dataclasses.dataclass(frozen=True)
class RunStaleness:
    """Staleness of a run in seconds. Percentiles and maximum are over the keys' averages over time."""

    mean: float  # area / (keys · time), each key counted by its weight
    p50: float
    p99: float
    max: float
    per_key: Floats  # the keys' averages; 0 for a key that was never updated
    seconds: float  # duration of the run

    def stalest(self, k: int) -> tuple[Int64s, Floats]:
        """Return the numbers and averages of the `k` most stale keys, the worst first; equal ones by number."""
        k = min(k, len(self.per_key))
        near = np.argpartition(-self.per_key, k - 1)[:k] if k else np.empty(0, dtype=np.int64)
        if k:  # whoever ties with the last of them has the same right, so the lowest numbers are taken
            near = np.flatnonzero(self.per_key >= self.per_key[near].min())
        chosen = near[np.lexsort((near, -self.per_key[near]))][:k].astype(np.int64)
        return chosen, self.per_key[chosen]


class StalenessAccount:
    """The staleness of keys, added up over a run from `start_us` on.

    Let t be the commit of a result, e the begin of its pending interval, and p the key's previous result. The commit
    adds the integral of x - e over x from max(e, p) to t. Results of one key must come in the order of their commits,
    over all calls. The number of keys grows when a larger key number is applied.
    """

    def __init__(self, keys: int = 0, *, start_us: int = 0) -> None:
        self._start_us = start_us
        self._area: Floats = np.zeros(keys, dtype=np.float64)
        self._weight: Floats = np.ones(keys, dtype=np.float64)
        self._previous_us: Int64s = np.full(keys, start_us, dtype=np.int64)

    @property
    def keys(self) -> int:
        return len(self._area)

    def deliver(
        self, keys: Int64s, first_arrival_us: Int64s, commit_us: Int64s | int, weight: Floats | None = None
    ) -> Ramps:
        """Count results that readers see from `commit_us` on, and return their ramps, in no particular order.

        A key may occur more than once. A key's last `weight` is its factor in the run's mean.
        """
        if len(keys) == 0:
            return Ramps(keys, keys)
        self._grow(int(keys.max()) + 1)
        commits = np.broadcast_to(np.asarray(commit_us, dtype=np.int64), keys.shape)
        # Of several results of a key in one call each ends where the one before it was there.
        order = np.lexsort((first_arrival_us, commits, keys))
        keys, first, commits = keys[order], first_arrival_us[order], commits[order]
        opens = np.concatenate([[True], keys[1:] != keys[:-1]])
        closes = np.concatenate([opens[1:], [True]])
        previous = np.concatenate([commits[:1], commits[:-1]])
        previous[opens] = self._previous_us[keys[opens]]
        ramps = _ramps(first, previous, commits)
        self._area += np.bincount(keys, weights=ramps.areas(), minlength=len(self._area))
        self._previous_us[keys[closes]] = np.maximum(self._previous_us[keys[closes]], commits[closes])
        if weight is not None:
            self._weight[keys[closes]] = weight[order][closes]
        return ramps

    def open_ramps(self, end_us: int, keys: Int64s, first_arrival_us: Int64s) -> tuple[Int64s, Ramps]:
        """Return the keys that wait at `end_us`, each once, and their ramps up to then."""
        numbers, codes = np.unique(keys, return_inverse=True)
        first = np.full(len(numbers), np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(first, codes, first_arrival_us)  # only a key's oldest update counts
        if len(numbers):
            self._grow(int(numbers[-1]) + 1)
        return numbers, _ramps(first, self._previous_us[numbers], np.full(len(numbers), end_us, dtype=np.int64))

    def finish(
        self, end_us: int, pending_keys: Int64s | None = None, pending_first_us: Int64s | None = None
    ) -> RunStaleness:
        """Return the averages up to `end_us`; pending keys are stale until then. The account can continue."""
        area, seconds = self._area, (end_us - self._start_us) / _US
        if pending_keys is not None and pending_first_us is not None:
            numbers, ramps = self.open_ramps(end_us, pending_keys, pending_first_us)
            area = self._area.copy()
            area[numbers] += ramps.areas()
        average = area / seconds if seconds > 0 else np.zeros_like(area)
        _, p50, p99, most = _figures(average)
        total = float(self._weight.sum())
        mean = float((average * self._weight).sum()) / total if total > 0 else 0.0
        return RunStaleness(mean, p50, p99, most, average, seconds)

    def _grow(self, keys: int) -> None:
        more = keys - len(self._area)
        if more <= 0:
            return
        self._area = np.concatenate([self._area, np.zeros(more)])
        self._weight = np.concatenate([self._weight, np.ones(more)])
        self._previous_us = np.concatenate([self._previous_us, np.full(more, self._start_us, dtype=np.int64)])


def _ramps(first: Int64s, previous: Int64s, until: Int64s) -> Ramps:
    high = np.maximum(until - first, 0)
    return Ramps(np.minimum(np.maximum(previous - first, 0), high), high)


def _figures(values: Floats) -> tuple[float, float, float, float]:
    if len(values) == 0:
        return 0.0, 0.0, 0.0, 0.0
    p50, p99 = np.percentile(values, [50, 99])
    return float(values.mean()), float(p50), float(p99), float(values.max())
