"""The evaluations of a stage: opened over their state, stepped once per batch, and saved; streams' progress."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from ..core.rows.exact_integers import LOWEST
from ..core.rows.frames import from_frame, to_frame
from ..core.watermark.bounds import is_finite
from ..operators.queue.queue import Control
from ..operators.relations.evaluation import Evaluation, PartFigures, lineage_of
from ..operators.relations.operator import FAILURES, reason_of
from ..operators.relations.plan.common_parts import in_words
from ..operators.relations.plan.nodes import Hop, Node, TimeRange, WindowOver, walk
from ..operators.relations.plan.properties import Clock
from ..operators.relations.queue_project import QueueStep
from ..operators.relations.slice_plan import narrowest
from ..operators.relations.zsets import BEGINNING, TIME
from ..operators.runtime.feeds import ENDED, FeedBounds
from ..operators.state.store import Store, StorePart, read_head
from .host_plan import Domain, HostPlan, PlacedFragment, PlacedQuery, PlacedRoute
from .messages import Message


class WaitingTables:
    """Tables that wait under a name until they can be processed. `kind` is their prefix in the store."""

    def __init__(self, store: Store, saved: Any, kind: str = "waiting") -> None:
        self._store = store
        self._kind = kind
        self._counts: dict[str, int] = dict(saved)

    def to_json(self) -> dict[str, int]:
        """Return the number of tables by name."""
        return self._counts

    def put(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            number = self._counts.get(name, 0)
            self._store.put(f"{self._kind}/{name}", number, to_frame(table))
            self._counts[name] = number + 1

    def take_last(self, name: str) -> pa.Table:
        """Remove and return the newest table under a name."""
        number = self._counts[name] = self._counts[name] - 1
        return self._taken(name, number)

    def keep(self, names: set[str]) -> None:
        """Remove the tables under other names."""
        for name in [each for each in self._counts if each not in names]:
            self.take(name)

    def take(self, name: str) -> list[pa.Table]:
        """Remove and return the tables under a name, in order of arrival."""
        return [self._taken(name, number) for number in range(self._counts.pop(name, 0))]

    def _taken(self, name: str, number: int) -> pa.Table:
        frame = self._store.get(f"{self._kind}/{name}", number)
        assert frame is not None
        self._store.remove(f"{self._kind}/{name}", number)
        return from_frame(frame)


@dataclass(frozen=True)
class PlanEvaluation:
    """A plan that an evaluation computes for one or several queries."""

    name: str
    plan: Node
    queries: tuple[PlacedQuery, ...]  # the queries that need it
    fragment: PlacedFragment | None = None  # the part of these queries that it computes; None in the second stage
    given: tuple[Node, ...] = ()  # parts of the plan whose changes come from the first stage
    collapse: bool = False  # emit only the net change of each step

    @property
    def ids(self) -> list[int]:
        return [each.id for each in self.queries]


@dataclass(frozen=True)
class BatchContext:
    """The time to which an evaluation steps. All times are in microseconds."""

    before: int | None  # low-watermark before the batch; None if there was none
    low_watermark: int | None
    now_us: int  # newest arrival so far
    since: int | None = None  # a query that begins now lacks changes before this time; None if it lacks none
    newest: int = LOWEST  # largest event time before the batch; `LOWEST` if none
    missed: bool = False  # rows came before the first batch that had the evaluation


@dataclass
class StepResult:
    """The result of one step."""

    changes: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])  # non-empty changes, by job
    late: Mapping[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])  # as in ``EvaluationStep``
    failed: dict[str, str] = field(default_factory=dict[str, str])  # reasons, by job
    # By job in its first step: time from which results are complete; None if never certain
    begun: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    # Received changes for a later step, if this one stopped below the low-watermark
    ahead: Mapping[Node, pl.DataFrame] = field(default_factory=dict[Node, pl.DataFrame])
    # Changes of parts that were asked for, by identity
    watched: Mapping[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])
    queues: Mapping[str, QueueStep] = field(default_factory=dict[str, QueueStep])  # figures of queues, by query


class Evaluations:
    """The evaluations of a stage in one shard."""

    def __init__(self, store: Store, saved: Any) -> None:
        self._store = store
        self._known: dict[str, dict[str, Any]] = dict(saved)
        self.stepped: dict[str, list[PartFigures]] = {}
        """The figures of the evaluations that have stepped, by name."""

    def to_json(self) -> dict[str, Any]:
        """Return, for each evaluation, its last jobs and the time that it reached."""
        return self._known

    @property
    def needs(self) -> int | None:
        """The least low-watermark that would change a result of event time; None if none would."""
        return min((each["due"] + 1 for each in self._held()), default=None)

    @property
    def held_since_us(self) -> int | None:
        """The arrival since which results of event time are held; None if none are."""
        return min((each["since"] for each in self._held()), default=None)

    @property
    def behind(self) -> bool:
        """True if an evaluation lags behind its low-watermark."""
        return any(each["behind"] for each in self._known.values())

    def is_behind(self, name: str) -> bool:
        """Return whether an evaluation lags behind its low-watermark."""
        return name in self._known and self._known[name]["behind"]

    def _held(self) -> list[dict[str, Any]]:
        known = [each for each in self._known.values() if each["clock"] == "event" and each["due"] is not None]
        return [each for each in known if is_finite(each["due"])]

    def keep(self, names: set[str]) -> None:
        """Remove the state of all evaluations but these."""
        for name in [each for each in self._known if each not in names]:
            _kept.taken(self._store, name, self._known.pop(name)["clock"]).clear()

    def step(
        self,
        name: str,
        clock: Clock,
        jobs: Mapping[str, PlanEvaluation],
        moment: BatchContext,
        streams: Mapping[str, pl.DataFrame],
        received: Mapping[Node, pl.DataFrame],
        stored: Mapping[str, Callable[[], pl.DataFrame]] | None = None,
        *,
        clears: bool = False,
        watch: Collection[str] = (),
        queues: Mapping[str, Control] | None = None,
    ) -> StepResult:
        """Step one evaluation; if nothing changes, return an empty result without opening it.

        The evaluation computes exactly `jobs` and forgets all others. With the clock of event time,
        `moment.low_watermark` is not None. `stored` has a reader for each stored relation, called in the step in which
        a job first needs its rows. With `clears`, the state that only removed jobs used is forgotten before new jobs
        begin; otherwise they would start from it. `watch` has the identities of parts whose changes are wanted, and
        `queues` the instructions to the queues of queries.
        """
        known = self._known.get(name)
        low = until = LOWEST if moment.low_watermark is None else moment.low_watermark
        digest = hashlib.sha256("\n".join(sorted(jobs)).encode()).hexdigest()[:16]
        idle = not any(frame.height for frame in (*streams.values(), *received.values()))
        idle = idle and known is not None and not known["queued"]
        if known is not None and idle and known["jobs"] == digest and not _passes(known, clock, until):
            return StepResult()
        evaluation = _kept.taken(self._store, name, clock)
        now = moment.now_us if clock == "arrival" else None
        begins = known is None
        if begins and moment.before is not None:
            # Rows have passed before this evaluation begins: it begins as if there had been none.
            evaluation.step({}, moment.before, now=None if now is None else now - 1)
        before = set() if known is None else set(known["names"])
        found = StepResult()
        running = set(evaluation.queries)
        for each in running - jobs.keys():
            evaluation.remove(each)
        new = [job for job in jobs.values() if job.name not in running]
        if clears:
            _add(evaluation, [job for job in new if job.name in before], found)
            evaluation.forget()
            new = [job for job in new if job.name not in before]
        _add(evaluation, new, found)
        streams = {**streams, **_begun_with(evaluation, stored or {}, found)}
        reach = evaluation.reach(streams, received, until)
        if reach < until:
            until, due = reach, pl.col(TIME) < reach
            found.ahead = {node: ahead for node, frame in received.items() if (ahead := frame.filter(~due)).height}
            received = {node: frame.filter(due) for node, frame in received.items()}
        outcome = evaluation.step(streams, until, received, now, watch, queues)
        found.watched, found.queues = outcome.watched, outcome.queues
        found.failed |= {job: in_words(reason_of(error), jobs[job].plan) for job, error in outcome.failed.items()}
        found.changes = {job: frame for job, frame in outcome.changes.items() if frame.height}
        found.late = outcome.late
        there = set(evaluation.queries)
        whole = _Whole({} if known is None else known["whole"], moment, first=begins)
        found.begun = {
            name: whole.of(evaluation.complete_from(name), _slides(job.plan))
            for name, job in jobs.items()
            if name in there and name not in before
        }
        evaluation.save()
        _kept.keep(evaluation)
        self.stepped[name] = evaluation.figures()
        names = sorted(there)
        due = evaluation.due
        since = None if known is None or known["due"] is None else known["since"]
        self._known[name] = {
            "clock": clock,
            "jobs": digest,
            "names": names,
            "until": until,
            "due": due,
            "behind": until < low,
            "queued": evaluation.waits,
            "since": moment.now_us if since is None else since,
            "whole": whole.to_json(),
        }
        return found


def _passes(known: Mapping[str, Any], clock: Clock, until: int) -> bool:
    """Return whether an evaluation has work if its low-watermark rises and no rows come."""
    if clock == "event":
        return bool(known["until"] != until)
    due = known["due"]
    return due is not None and due < until


def _add(evaluation: Evaluation, jobs: Iterable[PlanEvaluation], found: StepResult) -> None:
    """Add jobs, and record the failure of those that cannot be evaluated."""
    for job in sorted(jobs, key=lambda each: narrowest(each.plan)):
        try:
            evaluation.add(job.name, job.plan, job.given, collapse=job.collapse)
        except FAILURES as error:
            found.failed[job.name] = in_words(reason_of(error), job.plan)


def _begun_with(
    evaluation: Evaluation, stored: Mapping[str, Callable[[], pl.DataFrame]], found: StepResult
) -> dict[str, pl.DataFrame]:
    """Return the stored relations that beginning jobs need; if one cannot be read, its jobs fail."""
    rows: dict[str, pl.DataFrame] = {}
    for name, read in stored.items():
        jobs = evaluation.begins(name)
        if jobs:
            try:
                rows[name] = read()
            except FAILURES as error:
                for job in jobs:
                    evaluation.remove(job)
                    found.failed[job] = reason_of(error)
    return rows


_Columns = dict[str, frozenset[str]]


class KnownColumns:
    """The columns of streams that were sent in each batch since an evaluation began, or since its rows wait.

    The scan sends the columns that queries read. A query that begins later and reads others cannot start with an
    evaluation that lacks them in earlier rows. It begins a further evaluation of its group, as if there were no other.
    Which one it has depends on the plans of the batches so far, so it is the same in all shards.
    """

    def __init__(self, plan: HostPlan, saved: dict[str, list[tuple[int, dict[str, list[str]]]]]) -> None:
        self._plan = plan
        self._known: dict[str, dict[int, _Columns]] = {
            group: {number: {name: frozenset(some) for name, some in columns.items()} for number, columns in each}
            for group, each in saved.items()
        }
        self._used: set[tuple[str, int]] = set()

    def evaluation_of(self, fragment: PlacedFragment) -> str:
        """Return the name of the evaluation that computes a fragment: the first whose rows have all that it reads.

        An evaluation's fragments stay in it: what they read is sent in each batch.
        """
        known = self._known.setdefault(fragment.group, {})
        routes = [each for each in fragment.routes if not each.stream.static]
        fits = (at for at, each in known.items() if all(route.columns <= each[route.stream.name] for route in routes))
        number = next(fits, None)
        if number is None:
            number = max(known, default=-1) + 1
        if (fragment.group, number) not in self._used:
            self._used.add((fragment.group, number))
            before, sent = known.get(number), self._sent(routes)
            known[number] = sent if before is None else {name: each & before[name] for name, each in sent.items()}
        return f"{fragment.group}.{number}" if number else fragment.group

    def to_json(self) -> dict[str, Any]:
        """Return the columns by group and number, without evaluations that no fragment has used in this batch."""
        found: dict[str, list[tuple[int, dict[str, list[str]]]]] = {}
        for group, number in sorted(self._used):
            columns = {name: sorted(each) for name, each in self._known[group][number].items()}
            found.setdefault(group, []).append((number, columns))
        return found

    def _sent(self, routes: Iterable[PlacedRoute]) -> _Columns:
        return {each.stream.name: self._plan.routes[each.stream.name][each.name].columns for each in routes}


class _EvaluationCache:
    """An LRU cache of evaluations between batches, one for each state.

    It exists because opening an evaluation with a thousand queries takes a second. If another process has advanced the
    state, or a batch runs again, the state's token differs. The evaluation is then built from the state.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._by_lineage: OrderedDict[str, Evaluation] = OrderedDict()

    def taken(self, store: Store, name: str, clock: Clock) -> Evaluation:
        """Remove and return the evaluation of a state, so that only the caller has it."""
        token = read_head(StorePart(store, name)).get("token")
        with self._lock:
            kept = None if token is None else self._by_lineage.pop(lineage_of(token), None)
        return kept if kept is not None and kept.rebind(store) else Evaluation(store, clock=clock, name=name)

    def keep(self, evaluation: Evaluation) -> None:
        assert evaluation.token is not None
        with self._lock:
            self._by_lineage[lineage_of(evaluation.token)] = evaluation
            while len(self._by_lineage) > self._most:
                self._by_lineage.popitem(last=False)


_kept = _EvaluationCache(256)


class _Whole:
    """The time from which results are complete, if rows came before an evaluation began or ahead of its low-watermark.

    An evaluation counts from the low-watermark at which a window begins. A row that came earlier with a greater event
    time is missing from that window too, so results are complete only from that much later.
    """

    def __init__(self, saved: Mapping[str, Any], moment: BatchContext, *, first: bool) -> None:
        self._later = int(saved.get("later", 0))
        self._unsure = bool(saved.get("unsure", False)) or (first and moment.before is None and moment.missed)
        self._moment = moment

    def to_json(self) -> dict[str, Any]:
        return {"later": self._later, "unsure": self._unsure}

    def of(self, complete_from: int | None, slides_us: int) -> int | None:
        """Return the time for a job that begins in this step; None if results are never certainly complete.

        A result changes at the next multiple of a slide only.
        """
        if complete_from is None or (complete_from == BEGINNING and self._unsure):
            return None
        if complete_from == BEGINNING:
            return complete_from
        before, newest = self._moment.before, self._moment.newest
        if before is not None and newest != LOWEST:
            self._later = max(self._later, newest + 1 - before)
        return complete_from + self._later + (slides_us if self._later > 0 else 0)


def _slides(plan: Node) -> int:
    windows = (node.window for node in walk(plan) if isinstance(node, WindowOver))
    return sum(window.slide_us or 0 for window in windows if isinstance(window, TimeRange | Hop))


class Watermarks:
    """The bounds of all feeds of all streams. All shards receive the same ones, so all have the same watermarks."""

    def __init__(self, saved: Any) -> None:
        self._bounds = {stream: FeedBounds(each) for stream, each in saved.get("bounds", {}).items()}
        self._arrivals: dict[str, int] = dict(saved.get("arrivals", {}))
        self._reached: dict[str, int] = dict(saved.get("reached", {}))
        self._newest: dict[str, int] = dict(saved.get("newest", {}))

    def to_json(self) -> dict[str, Any]:
        bounds = {stream: each.to_json() for stream, each in self._bounds.items()}
        return {
            "bounds": bounds,
            "arrivals": self._arrivals,
            "reached": self._reached,
            "newest": self._newest,
        }

    def moments(self, domains: Iterable[Domain], heard: Sequence[Message]) -> dict[str, BatchContext]:
        """Apply the messages of all scan tasks, and return the time to which each domain is evaluated."""
        wanted = {each.name: each for each in domains}
        before = {name: self._before(each) for name, each in wanted.items()}
        newest = {name: self._newest_of(each) for name, each in wanted.items()}
        was_us = max(self._arrivals.values(), default=0)
        for message in heard:
            stream = message.control["stream"]
            bounds: dict[str, int] = message.control["bounds"]
            self._bounds.setdefault(stream, FeedBounds()).hear(bounds.keys(), bounds.values())
            self._arrivals[stream] = max(self._arrivals.get(stream, 0), int(message.control["arrival"]))
            if message.control["newest"] is not None:
                self._newest[stream] = max(self._newest.get(stream, LOWEST), int(message.control["newest"]))
        now_us = max(self._arrivals.values(), default=0)
        found: dict[str, BatchContext] = {}
        reached: dict[str, int] = {}
        for name, domain in wanted.items():
            low, passed = self._low(domain, self._reached.get(name)), before[name]
            if low is not None:
                # A new feed may be behind the others when the first query of a domain begins with it.
                low = reached[name] = low if passed is None else max(low, passed)
            since = was_us + 1 if passed is not None and domain.clock == "arrival" else passed
            found[name] = BatchContext(passed, low, now_us, since, newest[name])
        self._reached = reached
        return found

    def _newest_of(self, domain: Domain) -> int:
        return max((self._newest.get(each, LOWEST) for each in domain.streams), default=LOWEST)

    def _before(self, domain: Domain) -> int | None:
        low = self._low(domain, self._reached.get(domain.name))
        if low is None and domain.clock == "arrival" and any(each in self._arrivals for each in domain.streams):
            return LOWEST
        return low

    def _low(self, domain: Domain, reached: int | None) -> int | None:
        """Return the streams' least bound, but never less than `reached`, even if a new feed comes."""
        each = [self._bounds[name].low_watermark if name in self._bounds else None for name in domain.streams]
        known = [bound for bound in each if bound is not None]
        if len(known) < len(each):
            return reached
        low = min(known, default=ENDED)
        return low if reached is None else max(low, reached)


class StageProgress:
    """The progress of each shard of the first stage."""

    def __init__(self, saved: Any) -> None:
        self._domains: dict[str, dict[str, int | None]] = saved.get("domains", {})
        self._whole: dict[str, int | None] = saved.get("whole", {})
        self.now_us = int(saved.get("now", 0))
        self._firsts: dict[str, int] = {}
        self._sinces: dict[str, int | None] = {}

    def to_json(self) -> dict[str, Any]:
        return {"domains": self._domains, "whole": self._whole, "now": self.now_us}

    def hear(self, messages: Iterable[Message]) -> None:
        for message in messages:
            control = message.control
            self._domains[str(control["shard"])] = {name: low for name, (low, _, _) in control["domains"].items()}
            self.now_us = max(self.now_us, int(control["now"]))
            for name, (_, first, since) in control["domains"].items():
                self._sinces[name] = since
                self._firsts[name] = min(first, self._firsts.get(name, first))
            for name, since in control["whole"].items():
                known = self._whole.get(name, since)
                self._whole[name] = None if since is None or known is None else max(since, known)

    def moment(self, domain: Domain, shards: int) -> tuple[BatchContext, int]:
        """Return the time to which a domain is evaluated, and the arrival of the oldest row behind it."""
        lows = [each.get(domain.name) for each in self._domains.values()]
        known = [low for low in lows if low is not None]
        low = min(known) if len(known) == shards else None
        moment = BatchContext(None, low, self.now_us, self._sinces.get(domain.name))
        return moment, self._firsts.get(domain.name, self.now_us)

    def complete_from(self, jobs: Iterable[str]) -> int | None:
        """Return the time from which the changes of all given jobs are complete; None if unknown."""
        since = [self._whole.get(name) for name in jobs]
        known = [each for each in since if each is not None]
        return max(known) if len(known) == len(since) else None

    def forget(self, but: set[str]) -> None:
        self._whole = {name: since for name, since in self._whole.items() if name in but}
