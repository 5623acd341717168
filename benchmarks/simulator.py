"""Simulated runs for figures: arrivals by recipe, one run per seed, means with confidence intervals.

The simulator itself is part of the package (``operators/capacity/simulation.py``): it drives the queue that runs in
production.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from upstream.datasource.connectors.synthetic.stream import Recipe, synthetic_arrivals
from upstream.operators.capacity.simulation import ArrivalTrace, Server, SimulationFigures, shed_share, simulate
from upstream.operators.queue.cells import Usage
from upstream.operators.queue.monitor import StatisticsMonitor

__all__ = ["COST_S", "Estimate", "Workload", "estimate", "page_fill", "run"]

COST_S = 0.1
"""What a row costs in all figures of tr620: 10 rows per second go out."""

# 97.5 % quantiles of Student's t distribution for 1, 2, … degrees of freedom.
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half of the width of its 95 % confidence interval."""

    mean: float
    half: float

    def holds(self, value: float, slack: float = 0.0) -> bool:
        """Return whether a value lies in the interval, widened by a share of the value."""
        return abs(value - self.mean) <= self.half + slack * abs(value)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def page_fill(usage: Usage) -> float:
    """Return the share of the pages' space that was in use; 1 if there never was a page."""
    return usage.used / usage.paged if usage.paged else 1.0


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and confidence interval of independent runs."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Estimate(mean, math.inf)
    student = _STUDENT[n - 2] if n - 2 < len(_STUDENT) else 1.96
    return Estimate(mean, student * statistics.stdev(values) / math.sqrt(n))


@dataclasses.dataclass(frozen=True)
class Workload:
    """What comes, to one server that needs `COST_S` for each row.

    Attributes
    ----------
    keys : int
    rows_per_second : float
        Of all keys together.
    skew : float
        Zipf's exponent.
    rates : tuple of float, optional
        Each key's rate, instead of skew.
    poisson : bool
        Random arrivals; else at a constant pace, each row's key drawn at random (the Bernoulli trials of tr620 §5.2).
    """

    keys: int
    rows_per_second: float
    skew: float = 0.0
    rates: tuple[float, ...] | None = None
    poisson: bool = False

    @property
    def load(self) -> float:
        """Work that comes per second, in seconds."""
        return self.rows_per_second * COST_S

    def arrivals(self, seed: int, until_us: int) -> ArrivalTrace:
        """Return the rows of one seed."""
        recipe = Recipe(
            seed=seed,
            rows_per_second=self.rows_per_second,
            keys=self.keys,
            skew=self.skew,
            rates=self.rates,
            at_random=self.poisson,
        )
        return ArrivalTrace(*synthetic_arrivals(recipe, until_us), self.keys)


def run(
    workload: Workload, policy: str, seed: int, results: int, *, known_rates: bool = True, **options: int
) -> SimulationFigures:
    """Simulate as long as `results` rows take; `options` go to
    :func:`~upstream.operators.capacity.simulation.simulate`.
    """
    until = round(results * COST_S * 1e6)
    rates = np.array(workload.rates) if known_rates and workload.rates is not None else None
    monitor = StatisticsMonitor(cells=max(workload.keys, 1), cost_s=COST_S if known_rates else None, rate_per_s=rates)
    return simulate(
        workload.arrivals(seed, until),
        Server(COST_S * 1e6),
        policy,
        until,
        monitor=monitor,
        drop=shed_share(workload.load),
        seed=seed,
        **options,
    )
