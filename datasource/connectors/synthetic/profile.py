"""A feed's rate over time, as a map from the number of rows to the time they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["NEVER_US", "Burst", "RateProfile"]

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
    nothing, and any stretch can be made by itself. `rate` is the mean in rows per second outside of silences.
    `silences` are disjoint, increasing intervals [from, to) of elapsed microseconds; the last may have no end. The
    feed's clock stops in them, so its rows come later.
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
