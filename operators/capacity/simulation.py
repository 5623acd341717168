"""One server behind an update queue, simulated from event to event (tr620 §5, §7.3); capacity by simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s
from ..queue.cells import RESTING, Cells, Updates, Usage
from ..queue.keys import NumberedKeys
from ..queue.monitor import StatisticsMonitor
from ..queue.queue import POLICIES, Policy, UpdateQueue
from .staleness import Ramps, RunStaleness, StalenessAccount

_US = 1e6


@dataclasses.dataclass(frozen=True)
class ArrivalTrace:
    """Arriving rows, in the order of arrival."""

    at_us: Int64s  # never decreasing, from 0
    key: Int64s  # key numbers below `keys`
    keys: int  # number of keys, including those that never arrive


@dataclasses.dataclass(frozen=True)
class Server:
    """The cost of processing. A budget of 1 with no fixed cost is the server of tr620."""

    cost_us: float  # per row
    fixed_us: float = 0.0  # per batch
    budget: int | None = 1  # most rows in a batch; None for all that wait

    def __post_init__(self) -> None:
        if self.cost_us < 0 or self.fixed_us < 0 or self.cost_us + self.fixed_us < 1:
            raise OptionError(
                f"a server with {self.cost_us} µs per row and {self.fixed_us} µs per batch",
                expected="at least 0 µs each, and together at least 1 µs",
            )
        if self.budget is not None and self.budget < 1:
            raise OptionError(f"batches of {self.budget} rows", expected="at least 1 row")

    def batch_us(self, rows: int) -> int:
        """Return how long a batch of so many rows takes, in microseconds."""
        return max(round(self.fixed_us + self.cost_us * rows), 1)

    @property
    def rows_per_second(self) -> float:
        """The most rows per second that it can process; infinite when the batch's size costs nothing."""
        per_row_us = self.cost_us + (self.fixed_us / self.budget if self.budget is not None else 0.0)
        return _US / per_row_us if per_row_us > 0 else float("inf")

    def coarser(self, times: int) -> Server:
        """Return a server that takes `times` full batches as one, in the time that they take one after the other."""
        if times == 1 or self.budget is None:
            return self
        return Server(_US / self.rows_per_second, 0.0, self.budget * times)


@dataclasses.dataclass(frozen=True)
class RunAges:
    """Staleness of a simulated run, up to the commit or up to the dequeue."""

    run: RunStaleness  # averages over time by key
    ramps: Ramps  # all stretches in which a key was stale, including those still open at the end

    @property
    def mean(self) -> float:
        """Mean staleness in seconds, over keys and time."""
        return self.run.mean

    def quantiles(self, q: list[float]) -> npt.NDArray[np.float64]:
        """Return quantiles of staleness in seconds, as a reader of a random key at a random moment sees it."""
        return self.ramps.quantiles_s(q, len(self.run.per_key) * self.run.seconds)


@dataclasses.dataclass(frozen=True)
class SimulationFigures:
    """The figures of a simulated run, up to its end."""

    application: RunAges  # until the result is committed
    queue: RunAges  # until the row is dequeued
    arrived: int
    applied: int  # results
    batches: int
    pending: int  # rows that waited at the end
    wait_s: float  # mean time from first arrival to dequeue
    busy: float  # share of the time in which the server worked
    halfway: float  # mean of `application` over the first half of the run
    on_demand: Usage  # memory as it was used
    naive: Usage  # memory with a cell kept for every key ever seen


def shed_share(load: float) -> float:
    """Return the share of arriving rows to drop so that the load is at most 1."""
    return max(0.0, 1.0 - 1.0 / load) if load > 0 else 0.0


def simulate(
    arrivals: ArrivalTrace,
    server: Server,
    policy: Policy,
    end_us: int,
    *,
    monitor: StatisticsMonitor | None = None,
    drop: float = 0.0,
    seed: int = 0,
    page_slots: int = 1024,
    looks: int = 1,
) -> SimulationFigures:
    """Run the production queue with one server from time 0 to `end_us`.

    Arrivals and service times are given, so nothing else affects the results. Without `monitor`, rates and costs are
    measured. `drop` is the share of arrivals that ``shed`` drops, see :func:`shed_share`. `looks` is how often arrivals
    are enqueued during a service; it changes only the resolution of memory usage.
    """
    if end_us <= 0:
        raise OptionError(f"a run until {end_us} µs", expected="an end above 0")
    monitor = monitor or StatisticsMonitor()
    queue = UpdateQueue(policy, NumberedKeys(arrivals.keys), monitor=monitor, page_slots=page_slots, seed=seed)
    feed = _Feed(queue, arrivals, drop, end_us)
    served: list[Cells] = []
    starts: list[int] = []
    commits: list[int] = []
    now = busy = 0
    while True:
        feed.enqueue(now)
        if len(queue) == 0:
            following = feed.next_us()
            if following is None or following > end_us:
                break
            feed.hold(now, following)
            now = following
            continue
        if now >= end_us:
            break
        taken = queue.dequeue(server.budget, now)
        commit = now + server.batch_us(len(taken.locations))
        monitor.served(len(taken.locations), (commit - now) / _US)
        served.append(taken.cells)
        starts.append(now)
        commits.append(commit)
        busy += min(commit, end_us) - now
        for look in range(1, looks):
            between = now + (commit - now) * look // looks
            feed.hold(feed.held_us, between)
            feed.enqueue(between)
        feed.hold(feed.held_us, commit)
        now = commit
    feed.hold(feed.held_us, end_us)
    return _outcome(feed, served, starts, commits, end_us, busy)


class _Feed:
    """The arrivals still to be enqueued, and the queue's memory usage over time."""

    def __init__(self, queue: UpdateQueue, arrivals: ArrivalTrace, drop: float, end_us: int) -> None:
        self.queue = queue
        self.arrivals = arrivals
        self.end_us = end_us
        self.on_demand, self.naive = Usage(), Usage()
        self.held_us = 0
        self.arrived = 0
        self._drop = drop
        self._last = int(np.searchsorted(arrivals.at_us, end_us, side="right"))
        self._seen = np.zeros(arrivals.keys, dtype=np.bool_)
        self._keys_seen = 0

    def next_us(self) -> int | None:
        return int(self.arrivals.at_us[self.arrived]) if self.arrived < self._last else None

    def enqueue(self, now_us: int) -> None:
        stop = min(int(np.searchsorted(self.arrivals.at_us, now_us, side="right")), self._last)
        if stop <= self.arrived:
            return
        part = slice(self.arrived, stop)
        self.arrived = stop
        key = self.arrivals.key[part]
        self.queue.enqueue(Updates(key, None, self.arrivals.at_us[part]), now_us, drop=self._drop)
        if self._keys_seen < self.arrivals.keys:
            self._seen[key] = True
            self._keys_seen = int(np.count_nonzero(self._seen))

    def hold(self, since_us: int, until_us: int) -> None:
        """Count memory over a stretch of time in which nothing changes."""
        seconds = (min(until_us, self.end_us) - since_us) / _US
        self.held_us = min(until_us, self.end_us)
        if seconds <= 0:
            return
        pages, used = self.queue.pages, len(self.queue)
        self.on_demand.add(seconds, allocated=pages.used, used=used, paged=len(pages.pages()) * pages.slots)
        self.naive.add(seconds, allocated=self._keys_seen, used=used, paged=self._keys_seen)


def _outcome(
    feed: _Feed, served: list[Cells], starts: list[int], commits: list[int], end_us: int, busy: int
) -> SimulationFigures:
    feed.enqueue(end_us)  # what has come by then is stale, even if nobody looked
    none = np.empty(0, dtype=np.int64)
    rows = [len(cells) for cells in served]
    key = np.concatenate([none, *(cells.number for cells in served)])
    first = np.concatenate([none, *(cells.first_arrival for cells in served)])
    start = np.repeat(np.array(starts, dtype=np.int64), rows)
    commit = np.repeat(np.array(commits, dtype=np.int64), rows)
    held = feed.queue.cells(np.flatnonzero(feed.queue.pages.held))
    waits = held.state != RESTING  # rows that wait, and keys whose rows were dropped since their last result
    waiting = held.number[waits], held.first_arrival[waits]
    done = commit <= end_us
    keys = feed.arrivals.keys
    results = key, first, commit
    return SimulationFigures(
        application=perceived(keys, end_us, results, waiting),
        queue=_perceived(keys, end_us, (key, first, start), waiting),
        arrived=feed.arrived,
        applied=int(done.sum()),
        batches=int(np.count_nonzero(np.array(commits, dtype=np.int64) <= end_us)),
        pending=len(feed.queue),
        wait_s=float((start - first).mean()) / _US if len(start) else 0.0,
        busy=busy / end_us,
        halfway=perceived(keys, end_us // 2, results, waiting).mean,
        on_demand=feed.on_demand,
        naive=feed.naive,
    )


def perceived(
    keys: int, until_us: int, results: tuple[Int64s, Int64s, Int64s], waiting: tuple[Int64s, Int64s]
) -> RunAges:
    """Return the staleness up to a time by a run's `results` (key, first arrival, commit), and those `waiting`."""
    key, first, commit = results
    done, open_ = commit <= until_us, (commit > until_us) & (first <= until_us)
    came = waiting[1] <= until_us
    pending = np.concatenate([waiting[0][came], key[open_]]), np.concatenate([waiting[1][came], first[open_]])
    return _perceived(keys, until_us, (key[done], first[done], commit[done]), pending)


def _perceived(
    keys: int, end_us: int, results: tuple[Int64s, Int64s, Int64s], waiting: tuple[Int64s, Int64s]
) -> RunAges:
    account = StalenessAccount(keys)
    closed = account.deliver(*results)
    _, opened = account.open_ramps(end_us, *waiting)
    return RunAges(account.finish(end_us, *waiting), Ramps.together([closed, opened]))


@dataclasses.dataclass(frozen=True)
class InOrderOutcome:
    """A simulated run; see :class:`SimulationFigures` for its attributes."""

    application: RunAges
    halfway: float
    applied: int
    pending: int
    busy: float


def simulate_in_order(
    arrivals: ArrivalTrace, server: Server, end_us: int, *, drop: float = 0.0, seed: int = 0
) -> InOrderOutcome:
    """Run one server from time 0 to `end_us`, with results that equal those of ``simulate``.

    The order of service is that of arrival, so a batch is a slice of the arrivals. `drop` is the share of arrivals that
    are dropped at random (AQ-RLS).
    """
    came = int(np.searchsorted(arrivals.at_us, end_us, side="right"))
    at, key = arrivals.at_us[:came], arrivals.key[:came]
    stays = np.random.default_rng(seed).random(came) >= drop if drop else np.ones(came, dtype=np.bool_)
    first, dropped = _covering(at, key, stays)
    at, key = at[stays], key[stays]
    commit, busy = _commits(at, server, end_us)
    served = len(commit)
    # What was dropped since its key's last admitted row keeps the key stale, as what waits does.
    waiting = np.concatenate([key[served:], dropped[0]]), np.concatenate([first[served:], dropped[1]])
    results = key[:served], first[:served], commit
    return InOrderOutcome(
        application=perceived(arrivals.keys, end_us, results, waiting),
        halfway=perceived(arrivals.keys, end_us // 2, results, waiting).mean,
        applied=int(np.count_nonzero(commit <= end_us)),
        pending=len(key) - served,
        busy=busy / end_us,
    )


def _covering(at: Int64s, key: Int64s, stays: npt.NDArray[np.bool_]) -> tuple[Int64s, tuple[Int64s, Int64s]]:
    """Return the oldest arrival of each admitted row's run, and key and arrival of runs that no admitted row ends."""
    if stays.all():
        return at, (key[:0], at[:0])
    order = np.argsort(key, kind="stable")
    by_key, kept = key[order], stays[order]
    # A run is some dropped rows of a key and the admitted one that ends it, or dropped rows at the key's end.
    begins = np.concatenate([[True], (by_key[1:] != by_key[:-1]) | kept[:-1]])
    run = np.flatnonzero(begins)
    last = np.append(run[1:], len(order)) - 1
    ends_kept = kept[last]
    first = np.zeros(len(at), dtype=np.int64)
    first[order[last[ends_kept]]] = at[order[run[ends_kept]]]
    alone = run[~ends_kept]
    return first[stays], (by_key[alone], at[order[alone]])


def _commits(at: Int64s, server: Server, end_us: int) -> tuple[Int64s, int]:
    """Return the commit times of the rows that are served before the end, and the server's working time until then."""
    sizes: list[int] = []
    commits: list[int] = []
    now = taken = busy = 0
    rows = len(at)
    while taken < rows:
        stop = int(np.searchsorted(at, now, side="right"))
        if stop <= taken:
            now = int(at[taken])
            continue
        if now >= end_us:
            break
        size = stop - taken if server.budget is None else min(server.budget, stop - taken)
        commit = now + server.batch_us(size)
        busy += min(commit, end_us) - now
        sizes.append(size)
        commits.append(commit)
        taken, now = taken + size, commit
    return np.repeat(np.array(commits, dtype=np.int64), sizes), busy


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
    applied_per_s: float  # results per second
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
        applied_per_s=float(np.mean([run.applied for run in runs])) / end_us * 1e6,
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
