"""What staleness to expect of each policy, by simulating it: a capacity planner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ...conf.errors import OptionError
from ..queue.monitor import StatisticsMonitor
from ..queue.queue import POLICIES, Policy
from .in_order_server import InOrderOutcome, simulate_in_order
from .simulation import Arrivals, Outcome, Server, shed_share, simulate

__all__ = ["PLANNED", "Prediction", "plan"]

PLANNED: tuple[Policy, ...] = tuple(policy for policy in POLICIES if policy != "auto")
"""What is compared unless something else is asked for; `auto` is one or the other of these."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a policy leads to. Staleness in seconds, to the commit: what a reader of a random key at a random moment
    sees.

    Attributes
    ----------
    policy : str
    mean, p50, p99, max : float
        On average over the seeds; `max` is the largest of all.
    delivered_per_s : float
        Results per second.
    pending : float
        Rows that wait at the end of the run.
    busy : float
        The share of the time in which the server works.
    grows : bool
        Staleness in the second half of the run was well above that of the first: it has no limit, or is far from it.
    """

    policy: str
    mean: float
    p50: float
    p99: float
    max: float
    delivered_per_s: float
    pending: float
    busy: float
    grows: bool


def plan(
    arrivals: Callable[[int, int], Arrivals],
    server: Server,
    end_us: int,
    *,
    policies: Sequence[Policy] = PLANNED,
    seeds: int = 3,
    grain: int = 1,
    ran: Callable[[], None] = lambda: None,
) -> list[Prediction]:
    """Simulate some policies with the same arrivals.

    Parameters
    ----------
    arrivals : callable
        Of a seed and an end in microseconds, what comes until then.
    server : Server
        What processing costs.
    end_us : int
        How long each run is.
    policies : sequence of str
        Those to compare.
    seeds : int
        Runs per policy.
    grain : int
        How many full batches are simulated as one. Staleness is off by the time that they take, at most.
    ran : callable
        Called after each run.

    Raises
    ------
    OptionError
        A policy is unknown, or there are no runs.
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
    policy: Policy, came: Sequence[Arrivals], server: Server, end_us: int, grain: int, ran: Callable[[], None]
) -> Prediction:
    runs: list[Outcome | InOrderOutcome] = []
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
    policy: Policy, came: Arrivals, server: Server, end_us: int, seed: int, grain: int
) -> Outcome | InOrderOutcome:
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
