"""A capacity planner: the staleness to expect of each policy, by simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ...conf.errors import OptionError
from ..queue.monitor import StatisticsMonitor
from ..queue.queue import POLICIES, Policy
from .simulation import ArrivalTrace, InOrderOutcome, Server, SimulationFigures, shed_share, simulate, simulate_in_order

PLANNED: tuple[Policy, ...] = tuple(policy for policy in POLICIES if policy != "auto")
"""The default policies to compare; `auto` always acts as one of them."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The expected figures of a policy, averaged over the seeds. Staleness is in seconds, up to the commit."""

    policy: str
    mean: float
    p50: float
    p99: float
    max: float  # the largest of all seeds
    delivered_per_s: float  # results per second
    pending: float  # rows that wait at the end of the run
    busy: float  # share of the time in which the server works
    grows: bool  # much more staleness in the second half of the run: it has no limit, or has not reached it


def plan(
    arrivals: Callable[[int, int], ArrivalTrace],
    server: Server,
    end_us: int,
    *,
    policies: Sequence[Policy] = PLANNED,
    seeds: int = 3,
    grain: int = 1,
    ran: Callable[[], None] = lambda: None,
) -> list[Prediction]:
    """Predict the staleness of each policy by simulating all of them with the same arrivals.

    `arrivals` maps a seed and an end in microseconds to the arrivals until then. `grain` full batches are simulated as
    one, which makes staleness wrong by at most the time they take. `ran` is called after each run.
    """
    unknown = [policy for policy in policies if policy not in POLICIES]
    if unknown or seeds < 1:
        raise OptionError(
            f"policies {', '.join(unknown)} unknown" if unknown else f"{seeds} runs",
            expected=("some of " + ", ".join(POLICIES)) if unknown else "at least 1",
        )
    came = [arrivals(seed, end_us) for seed in range(seeds)]
    return [_predict(policy, came, server, end_us, grain, ran) for policy in policies]


def _predict(
    policy: Policy, came: Sequence[ArrivalTrace], server: Server, end_us: int, grain: int, ran: Callable[[], None]
) -> Prediction:
    runs: list[SimulationFigures | InOrderOutcome] = []
    for seed, each in enumerate(came):
        runs.append(_run(policy, each, server, end_us, seed, grain))
        ran()
    figures = np.array([run.application.quantiles([0.5, 0.99, 1.0]) for run in runs])
    mean = float(np.mean([run.application.mean for run in runs]))
    p50, p99 = figures[:, :2].mean(axis=0)
    return Prediction(
        policy=policy,
        mean=mean,
        p50=float(p50),
        p99=float(p99),
        max=float(figures[:, 2].max()),
        delivered_per_s=float(np.mean([run.delivered for run in runs])) / end_us * 1e6,
        pending=float(np.mean([run.pending for run in runs])),
        busy=float(np.mean([run.busy for run in runs])),
        # What grows with time without limit has a mean that doubles when the run does.
        grows=mean > 1.5 * float(np.mean([run.halfway for run in runs])) and mean * 1e6 > 2 * server.batch_us(1),
    )


def _run(
    policy: Policy, came: ArrivalTrace, server: Server, end_us: int, seed: int, grain: int
) -> SimulationFigures | InOrderOutcome:
    seconds = end_us / 1e6
    load = int(np.searchsorted(came.at_us, end_us, side="right")) / seconds / server.rows_per_second
    served = server.coarser(grain)
    if policy in ("append", "shed"):
        drop = shed_share(load) if policy == "shed" else 0.0
        return simulate_in_order(came, served, end_us, drop=drop, seed=seed)
    # Rates as they are, so that linecutting is not judged by its first minute.
    rate = np.bincount(came.key, minlength=came.keys) / max(
        float(came.at_us[-1]) / 1e6 if len(came.at_us) else 0.0, 1e-6
    )
    monitor = StatisticsMonitor(cells=1, rate_per_s=rate)
    return simulate(came, served, policy, end_us, monitor=monitor, seed=seed)
