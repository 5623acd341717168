"""When rows come: a feed's rate over time, as a map from the number of rows to the time they take.

Random arrivals are made at rate one, and this map stretches them (the time change of a Poisson process), so bursts and
silences cost nothing and any stretch can still be made on its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["NEVER_US", "Burst", "RateProfile"]

NEVER_US = 1 << 62
"""Elapsed time of what never comes."""


@dataclasses.dataclass(frozen=True)
class Burst:
    """In the first `length_us` of every `every_us` the rate is `factor` times the mean; the rest makes up for it."""

    length_us: int
    every_us: int
    factor: float


class RateProfile:
    """The rate of one feed over time.

    Parameters
    ----------
    rate : float
        Mean rows per second while the feed is not silent.
    burst : Burst, optional
        How the rate swings around its mean.
    silences : sequence of (int, int or None)
        Intervals [from, to) in elapsed microseconds without a row, disjoint and increasing; the last may have no end.
        What would have come then comes later: the clock of the feed stands still.
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
        """Return the microseconds until that many rows (a real number) have come; :data:`NEVER_US` if never.

        The result never decreases with `rows`.
        """
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
