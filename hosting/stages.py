"""The two stages: the first evaluates streams, the second what needs another key than that of the streams."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import pyarrow as pa

from ..conf.deep_stack import on_deep_stack
from ..conf.units import now_us
from ..core.feedback.checkpoint_layout import query_queue_folder, stage_folder
from ..core.feedback.control import PART
from ..core.feedback.reports import (
    QueueReport,
    RowSample,
    ServiceReport,
    StageReport,
    read_report,
    sample_folder,
    write_report,
)
from ..core.rows.exact_integers import LOWEST
from ..core.rows.frames import by_number, from_frame, to_frame
from ..operators.relations.operator import FAILURES, reason_of
from ..operators.relations.plan.common_parts import in_words
from ..operators.relations.plan.identity import identity
from ..operators.relations.plan.nodes import Node, walk
from ..operators.relations.queue_project import QueueStep
from ..operators.relations.zsets import BEGINNING, TIME, WEIGHT, columns_of
from ..operators.runtime.shard import DeadLetters
from ..operators.state.store import check_head, read_head, write_head
from ..storage.folder import folder_at
from .evaluations import (
    BatchContext,
    Evaluations,
    KnownColumns,
    PlanEvaluation,
    StageProgress,
    StepResult,
    WaitingTables,
    Watermarks,
)
from .host_plan import Domain, HostPlan, HostPlans, PlacedFragment, PlacedQuery, PlacedRoute, named
from .late_rows import LateRows, least_time, refused_letters
from .messages import Command, Message, Outbox, PackedRow, by_kind, control_of, read_messages
from .output import DeferredChanges, KnownQueries, ResultOutput, Stamp
from .reports import PartCost, PartsReport
from .scan import in_order, oldest_arrival, rows_of, shards_of, stored_rows

if TYPE_CHECKING:
    from ..operators.state.store import Store


@dataclass
class ShardEvaluation:
    """An evaluation in a shard: its jobs by name, and its inputs by the name under which they wait."""

    name: str
    domain: Domain
    routes: Mapping[str, PlacedRoute] = field(default_factory=dict[str, PlacedRoute])  # in the first stage
    given: Mapping[str, Node] = field(default_factory=dict[str, Node])  # in the second stage
    jobs: dict[str, PlanEvaluation] = field(default_factory=dict[str, PlanEvaluation])

    def waits(self, moment: BatchContext) -> bool:
        """Return whether its rows have to wait for a first low-watermark."""
        return moment.low_watermark is None and self.domain.clock == "event"


class StageShard(ABC):
    """One batch of one shard of a stage, with the state of the shard.

    `waiting` has rows or changes that wait for a low-watermark; `deferred` has results that wait for a later batch.
    Raises CheckpointError if the state was written for another number of shards or by another version.
    """

    def __init__(self, shard: int, plan: HostPlan, store: Store, command: Command) -> None:
        self.shard, self.plan, self.command = shard, plan, command
        self._store = store
        self._identity = {"shards": str(plan.shards)}
        self._head = read_head(store)
        check_head(self._head, self._identity, "the queries of this checkpoint were begun", "number of shards")
        self.known = KnownQueries(self._saved("queries"))
        self.evaluations = Evaluations(store, self._saved("evaluations"))
        self.waiting = WaitingTables(store, self._saved("waiting"))
        self.deferred = DeferredChanges(store, self._saved("deferred"))
        self.held = self._saved("held")
        """:attr:`holds` after the previous batch."""
        self.queues: dict[int, QueueStep] = {}
        """After :meth:`run`: the figures of the queues that had work, by the query's incarnation."""
        self.samples: dict[str, RowSample] = {}
        """After :meth:`run`: the rows that a control asked for, by part."""
        sampled: dict[str, int] = self._saved("sampled")
        self._sampled = {key: sampled.get(key, 0) for key, _ in command.samples}
        self._wanted = {key: number for key, number in command.samples if number > self._sampled[key]}
        # Rows that wait for a first low-watermark: their least event time, and their arrival.
        self._ahead: dict[str, tuple[int, int]] = dict(self._saved("ahead"))
        self._out = Outbox(plan.slots)
        self._refused: dict[str, list[pa.Table]] = {}

    def _saved(self, name: str) -> dict[str, Any]:
        """Return the saved value of this name; empty at first."""
        return self._head.get(name, {})

    def run(self, messages: list[Message]) -> pa.Table | None:
        """Process the messages of a batch, and return the rows to send."""
        self.known.follow(self.plan)
        self._hear(messages)
        served = self.plan.served(self.command.served)
        self._results = ResultOutput(self.plan, self.known, self._out, self.deferred, served)
        evaluations = self._evaluations = self._shard_evaluations()
        self.evaluations.keep(set(evaluations))
        inputs = {name for each in evaluations.values() for name in (*each.routes, *each.given)}
        self.waiting.keep(inputs)
        self._ahead = {name: held for name, held in self._ahead.items() if name in inputs}
        for each in evaluations.values():
            found = self._step(each)
            if found is not None:
                self._emit(each, *found)
        now_us = self._now_us
        self._results.close(self._stamp(now_us, now_us))
        lagging = (name for name in evaluations if self.evaluations.is_behind(name))
        behind = [number for name in lagging for job in evaluations[name].jobs.values() for number in job.ids]
        self._results.reach(self._reached(), behind)
        self._close()
        write_head(self._store, self._identity, self._to_json())
        return self._out.table() if len(self._out) else None

    @abstractmethod
    def _hear(self, messages: list[Message]) -> None:
        """Apply what was sent to the shard."""

    @abstractmethod
    def _shard_evaluations(self) -> dict[str, ShardEvaluation]:
        """Return the evaluations of this shard by name."""

    @abstractmethod
    def _step(self, each: ShardEvaluation) -> tuple[StepResult, BatchContext, int] | None:
        """Step an evaluation; return also the time, and the oldest arrival behind the result; None if it waits."""

    @property
    @abstractmethod
    def _now_us(self) -> int:
        """The newest arrival so far."""

    @abstractmethod
    def _begin(self, job: PlanEvaluation, complete_from: int | None, since: int | None) -> None:
        """Emit that a job has made its first step."""

    def _reached(self) -> dict[str, int]:
        """Return the low-watermarks of the domains; one shard of the last stage has them."""
        return {}

    def _close(self) -> None:  # noqa: B027
        """Emit what follows all results."""

    def _take(self, job: PlanEvaluation, changes: pl.DataFrame, stamp: Stamp) -> None:
        """Emit the changes of a job."""
        self._results.take(job.queries[0], changes, stamp)

    def _stamp(self, now_us: int, first_us: int) -> Stamp:
        return Stamp(self.command.batch, self.shard, self.plan.shards, now_us, first_us)

    def _emit(self, each: ShardEvaluation, stepped: StepResult, moment: BatchContext, first_us: int) -> None:
        for name, reason in stepped.failed.items():
            self.known.fail(each.jobs[name].ids, reason)
        for name, complete_from in stepped.begun.items():
            self._begin(each.jobs[name], complete_from, moment.since)
        stamp = self._stamp(moment.now_us, first_us)
        for name, changes in stepped.changes.items():
            self._take(each.jobs[name], changes, stamp)
        for stream, rows in stepped.late.items():
            queries = sorted({(query.id, query.name) for job in each.jobs.values() for query in job.queries})
            self._results.late(stream, rows.height, [number for number, _ in queries])
            self._leave_out(stream, rows, [name for _, name in queries])
        ids = {query.name: query.id for job in each.jobs.values() for query in job.queries}
        for name, figures in stepped.queues.items():
            self.queues[ids[name]] = figures
            if (oldest_us := figures.report["oldest_us"]) is not None:
                self._results.queued[ids[name]] = oldest_us
        for key, rows in stepped.watched.items():
            self._sampled[key] = self._wanted.pop(key)
            self.samples[key] = self._sample(key, rows, each)

    def _leave_out(self, stream: str, rows: pl.DataFrame, queries: Sequence[str]) -> None:
        """Keep rows that an evaluation has refused, with the reason."""
        self._refused.setdefault(stream, []).append(refused_letters(rows, queries))

    def _sample(self, key: str, rows: pl.DataFrame, each: ShardEvaluation) -> RowSample:
        """Return the first changes of a part, with the columns as a query that has the part names them."""
        plan = next(job.plan for job in each.jobs.values() if any(identity(node) == key for node in walk(job.plan)))
        at = pl.when(pl.col(TIME) != BEGINNING).then(pl.col(TIME)).cast(pl.Datetime("us", "UTC"))
        rows = rows.head(RowSample.share(0, 1))
        streams = [self.plan.routes[route.stream.name][route.name] for route in each.routes.values()]
        unread = {name for route in streams for name in route.stream.schema.names}
        unread -= frozenset[str]().union(*(route.columns for route in streams))
        names = [name for name in columns_of(rows) if name.rstrip("|") not in unread]
        named = [pl.col(name).alias(f"{number} {in_words(name, plan)}") for number, name in enumerate(names)]
        table = rows.select(*named, at.alias("- time of the change"), pl.col(WEIGHT).alias("- weight")).to_arrow()
        table = table.rename_columns([name.partition(" ")[2] for name in table.column_names])
        return RowSample.of(self.shard, self._sampled[key], self.command.batch, table, table.num_rows)

    def costs(self, before: PartsReport | None, began_us: int, spent_s: float) -> PartsReport:
        """Return the report on the parts: what has not stepped in this batch is as in the report `before`."""
        known = {} if before is None else {n: v for n, v in before.evaluations.items() if n in self._evaluations}
        for name, parts in self.evaluations.stepped.items():
            jobs = self._evaluations[name].jobs
            found = [
                PartCost(
                    part.key, sorted({number for job in part.queries for number in jobs[job].ids}),
                    round(part.spent_s, 6), part.average_s, part.rows, part.bytes, part.beside,
                )
                for part in parts
            ]  # fmt: skip
            known[name] = self.command.batch, found
        return PartsReport(self.shard, self.command.batch, began_us, round(spent_s, 6), known)

    @property
    def holds(self) -> dict[str, Any]:
        """The values of the shard's ``StageReport``."""
        found = self.evaluations
        needs = [least + 1 for least, _ in self._ahead.values()]
        since = [since for _, since in self._ahead.values()]
        needs += [] if found.needs is None else [found.needs]
        since += [] if found.held_since_us is None else [found.held_since_us]
        return {
            "needs": min(needs, default=None),
            "held_since_us": min(since, default=None),
            "behind": found.behind,
        }

    def _to_json(self) -> dict[str, Any]:
        return {
            "queries": self.known.to_json(),
            "evaluations": self.evaluations.to_json(),
            "waiting": self.waiting.to_json(),
            "deferred": self.deferred.to_json(),
            "held": self.holds,
            "ahead": self._ahead,
            "sampled": self._sampled,
        }


class Stage(ABC):
    """Runs each shard's part of a batch; the shards report below the job's `checkpoint`: their state, and their cost.

    Guarantee: a batch is a function of the state before it, the rows, and the command in the batch's offsets. A rerun
    gives the same rows, byte for byte.
    """

    number: ClassVar[int]

    def __init__(self, command: Command, plans: HostPlans, checkpoint: str | None = None) -> None:
        self.command = command
        self._plans = plans
        self._checkpoint = checkpoint

    def batch(self, shard: int, store: Store, rows: Iterable[PackedRow]) -> pa.Table | None:
        """Return the rows that a shard sends, given those that were sent to it; None for none."""
        began_us, began = now_us(), time.perf_counter()
        made = self._made(shard, self._plans(self.command.version), store)
        left = on_deep_stack(lambda: made.run(read_messages(rows)))
        self._put_aside(made)
        if self._checkpoint is not None:
            self._report(made, self._checkpoint, began_us, time.perf_counter() - began)
        return left

    def _put_aside(self, made: StageShard) -> None:  # noqa: B027
        """Write the rows of the batch that no result takes."""

    def _report(self, made: StageShard, checkpoint: str, began_us: int, spent_s: float) -> None:
        folder = stage_folder(checkpoint, self.number)
        if made.holds != made.held:
            write_report(folder, StageReport(made.shard, **made.holds))
        for query, (report, (rows, began, ended)) in made.queues.items():
            place = query_queue_folder(checkpoint, query)
            write_report(place, QueueReport(made.shard, made.command.batch, **report))
            if rows:
                write_report(place, ServiceReport(made.shard, rows, began, ended))
        for key, sample in made.samples.items():
            write_report(sample_folder(folder_at(checkpoint), f"{PART}/{key}"), sample)
        began = time.monotonic()
        if made.evaluations.stepped and began >= _next_costs.get((folder, made.shard), began):
            before = read_report(folder, PartsReport, made.shard)
            write_report(folder, made.costs(before, began_us, spent_s))
            _next_costs[folder, made.shard] = time.monotonic() + _COSTS_TO_WORK * (time.monotonic() - began)

    @abstractmethod
    def _made(self, shard: int, plan: HostPlan, store: Store) -> StageShard: ...


_COSTS_TO_WORK = 50
_next_costs: dict[tuple[str, int], float] = {}
"""When a shard may report costs again: to write them takes 2 % of a process's time at most."""


class FirstShard(StageShard):
    """One batch of one shard of the first stage: from rows of streams to results, and changes for the second stage."""

    def __init__(
        self, shard: int, plan: HostPlan, store: Store, command: Command, storage: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(shard, plan, store, command)
        self._storage = storage or {}
        self._watermarks = Watermarks(self._saved("watermarks"))
        self._missed: dict[str, bool] = self._saved("missed")
        self._columns = KnownColumns(plan, self._saved("columns"))
        self._moments: dict[str, BatchContext] = {}
        self._rows: dict[str, pa.Table] = {}
        self._firsts: dict[str, int] = {}
        self._whole: dict[str, int | None] = {}

    def _close(self) -> None:
        for stream, count, queries in self._late.counts(self.known.running(self.plan)):
            self._results.late(stream, count, queries)
        domains = {
            name: [each.low_watermark, self._firsts.get(name, each.now_us), each.since]
            for name, each in self._moments.items()
        }
        heard = control_of("heard", shard=self.shard, domains=domains, whole=self._whole, now=self._now_us)
        if self.plan.uses_second or self._head.get("version") != self.plan.version:
            self._out.put_to_all(heard)
        else:  # the others would only rewrite their heads
            self._out.put(REACHES, heard)

    def _hear(self, messages: list[Message]) -> None:
        kinds = by_kind(messages)
        reasons = {message.control["routing"]: message.control["reason"] for message in kinds.get("unroutable", [])}
        for query in self.plan.queries.values():
            routes = {route.name for each in query.fragments for route in each.routes}
            for name in sorted(routes & reasons.keys()):
                self.known.fail([query.id], reasons[name])
        domains = {each.domain.name: each.domain for each in self.plan.queries.values()}
        self._moments = self._watermarks.moments(domains.values(), kinds.get("scan", []))
        tables: dict[str, list[pa.Table]] = {}
        for message in kinds.get("rows", []):
            assert message.frame is not None
            tables.setdefault(message.control["routing"], []).append(from_frame(message.frame))
        self._rows = {routing: in_order(each) for routing, each in tables.items()}
        self._late = LateRows(self.plan, self._moments, self._rows)

    def letters(self, stream: str) -> Iterator[tuple[str, pa.Table]]:
        """Yield the late rows of a stream with their reasons, after :meth:`run`, by the kind of lateness."""
        found = self._late.letters(stream, self.plan.queries.values())
        if found is not None:
            yield "late", found
        if stream in self._refused:
            yield "refused", pa.concat_tables(self._refused[stream])

    def _shard_evaluations(self) -> dict[str, ShardEvaluation]:
        found: dict[str, ShardEvaluation] = {}
        for query in self.known.running(self.plan):
            for each in query.fragments:
                if each.gathered not in (None, self.shard):
                    continue
                evaluation = self._columns.evaluation_of(each)
                if evaluation not in found:
                    routes = {f"{evaluation}/{route.stream.name}": route for route in each.routes}
                    found[evaluation] = ShardEvaluation(evaluation, each.domain, routes)
                jobs, name = found[evaluation].jobs, self.known.job_name(query, each)
                queries = (*jobs[name].queries, query) if name in jobs else (query,)
                jobs[name] = PlanEvaluation(name, each.plan, queries, each, collapse=_collapses(query, each))
        # Rows that wait for a first low-watermark wait only for evaluations that exist.
        newest = {name: self._moments[each.domain.name].newest for name, each in found.items()}
        self._missed = {name: self._missed.get(name, newest[name] != LOWEST) for name in found}
        return found

    def _step(self, each: ShardEvaluation) -> tuple[StepResult, BatchContext, int] | None:
        domain = each.domain
        moment = replace(self._moments[domain.name], missed=self._missed[each.name])
        taken = self._taken(each, moment)
        if taken is None:
            return None
        oldest = [found for table in taken.values() if (found := oldest_arrival(table)) is not None]
        first = min(oldest, default=moment.now_us)
        self._firsts[domain.name] = min(first, self._firsts.get(domain.name, first))
        schemas = {route.stream.name: route.stream.schema for route in each.routes.values()}
        streams = {stream: rows_of(table, schemas[stream]) for stream, table in taken.items() if table.num_rows}
        stored = stored_rows(each.routes.values(), self.shard, self.plan.shards, self._storage)
        every = (query for job in each.jobs.values() for query in job.queries)
        controls = {one.name: self.command.control_of_queue(one.id, self.shard, self.plan.shards) for one in every}
        stepped = self.evaluations.step(
            each.name, domain.clock, each.jobs, moment, streams, {}, stored,
            clears=self.known.clears, watch=self._wanted.keys(),
            queues={name: control for name, control in controls.items() if control is not None},
        )  # fmt: skip
        return stepped, moment, first

    def _taken(self, each: ShardEvaluation, moment: BatchContext) -> dict[str, pa.Table] | None:
        """Return an evaluation's rows by stream; None if they have to wait."""
        found: dict[str, pa.Table] = {}
        waits = each.waits(moment)
        for name, route in each.routes.items():
            came = [self._late.in_time(route, each.domain)] if route.name in self._rows else []
            if waits:
                for table in came:
                    self.waiting.put(name, table)
                    least = least_time(table, route.stream)
                    if least is not None:
                        known, since = self._ahead.get(name, (least, moment.now_us))
                        self._ahead[name] = min(known, least), since
                continue
            self._ahead.pop(name, None)
            came = [*self.waiting.take(name), *came]
            if came:
                found[route.stream.name] = in_order(came) if len(came) > 1 else came[0]
        return None if waits else found

    @property
    def _now_us(self) -> int:
        return max((each.now_us for each in self._moments.values()), default=0)

    def _begin(self, job: PlanEvaluation, complete_from: int | None, since: int | None) -> None:
        if job.fragment is not None and job.fragment.is_result:
            self._results.begin(job.queries[0], complete_from, since)
        else:
            self._whole[job.name] = complete_from

    def _take(self, job: PlanEvaluation, changes: pl.DataFrame, stamp: Stamp) -> None:
        fragment = job.fragment
        assert fragment is not None
        if fragment.onward is None:
            super()._take(job, changes, stamp)
            return
        control = control_of("changes", job=job.name, shard=self.shard)
        table = changes.to_arrow(compat_level=pl.CompatLevel.oldest())
        if fragment.shard is not None:
            self._out.put(fragment.shard, control, to_frame(table))
            return
        try:
            shard = shards_of(changes, fragment.onward, fragment.plan.schema, self.plan.shards)
        except FAILURES as error:
            self.known.fail(job.ids, reason_of(error))
            return
        for number, part in by_number(table, shard, self.plan.shards):
            self._out.put(number, control, to_frame(part))

    def _to_json(self) -> dict[str, Any]:
        own = {"version": self.plan.version, "watermarks": self._watermarks.to_json(), "missed": self._missed}
        return {**super()._to_json(), **own, "columns": self._columns.to_json()}


class FirstStage(Stage):
    """The stage that evaluates streams; see :class:`Stage`.

    `storage` has the object store's options for stored relations. It is never written to a file, since it may have
    secrets. `letters` has the table of dead letters for the late rows of a stream, if they are kept.
    """

    number = 0

    def __init__(
        self,
        command: Command,
        plans: HostPlans,
        storage: Mapping[str, str] | None = None,
        checkpoint: str | None = None,
        letters: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(command, plans, checkpoint)
        self._storage = storage
        self._letters = letters or {}

    def _put_aside(self, made: StageShard) -> None:
        assert isinstance(made, FirstShard)
        for stream, location in self._letters.items():
            for kind, rows in made.letters(stream):
                DeadLetters(location, stream, kind).write(self.command.batch, made.shard, rows)

    def _made(self, shard: int, plan: HostPlan, store: Store) -> StageShard:
        return FirstShard(shard, plan, store, self.command, self._storage)


REACHES = 0
"""The shard of the second stage that emits what is said once for all shards, such as the low-watermarks."""


def _collapses(query: PlacedQuery, fragment: PlacedFragment) -> bool:
    """Return whether the net changes of a fragment are enough."""
    return query.result.kind == "latest" if fragment.is_result else not fragment.every_change


class SecondShard(StageShard):
    """One batch of one shard of the second stage: from the first stage's changes to results."""

    def __init__(self, shard: int, plan: HostPlan, store: Store, command: Command) -> None:
        super().__init__(shard, plan, store, command)
        self._heard = StageProgress(self._saved("heard"))
        self._changes: dict[str, pa.Table] = {}

    def _hear(self, messages: list[Message]) -> None:
        for message in messages:
            if message.kind not in ("changes", "heard"):
                self._out.put(self.shard, message.text, message.frame)
        kinds = by_kind(messages)
        self._heard.hear(kinds.get("heard", []))
        self._changes = _tables(kinds.get("changes", []))

    def _shard_evaluations(self) -> dict[str, ShardEvaluation]:
        found: dict[str, ShardEvaluation] = {}
        for query in self.known.running(self.plan):
            if query.second is None or query.shard not in (None, self.shard):
                continue
            given = {self.known.job_name(query, each): each.plan for each in query.fragments}
            # The same for queries with the same inputs.
            name = named("second", query.domain.name, query.shard, sorted(given))
            each = found.setdefault(name, ShardEvaluation(name, query.domain, given=given))
            job, collapse = str(query.id), query.result.kind == "latest"
            each.jobs[job] = PlanEvaluation(job, query.second, (query,), given=tuple(given.values()), collapse=collapse)
        self._heard.forget({name for each in found.values() for name in each.given})
        return found

    def _step(self, each: ShardEvaluation) -> tuple[StepResult, BatchContext, int] | None:
        moment, first = self._heard.moment(each.domain, self.plan.shards)
        received = self._received(each, moment)
        if received is None:
            return None
        stepped = self.evaluations.step(
            each.name, each.domain.clock, each.jobs, moment, {}, received, watch=self._wanted.keys()
        )
        for name, node in each.given.items():
            if node in stepped.ahead:
                self.waiting.put(name, stepped.ahead[node].to_arrow(compat_level=pl.CompatLevel.oldest()))
        return stepped, moment, first

    def _received(self, each: ShardEvaluation, moment: BatchContext) -> dict[Node, pl.DataFrame] | None:
        """Return the changes below the low-watermark, and keep the others. None if there is no low-watermark yet."""
        waits = each.waits(moment)
        found: dict[Node, pl.DataFrame] = {}
        for name, node in each.given.items():
            came = [self._changes[name]] if name in self._changes else []
            if waits:
                for table in came:
                    self.waiting.put(name, table)
                continue
            tables = [*self.waiting.take(name), *came]
            if tables:
                frame = pl.from_arrow(pa.concat_tables(tables))
                assert isinstance(frame, pl.DataFrame)
                if each.domain.clock == "event":
                    due = pl.col(TIME) < moment.low_watermark
                    self.waiting.put(name, frame.filter(~due).to_arrow(compat_level=pl.CompatLevel.oldest()))
                    frame = frame.filter(due)
                found[node] = frame
        return None if waits else found

    def _reached(self) -> dict[str, int]:
        domains = {each.domain.name: each.domain for each in self.plan.queries.values()}
        if self.shard != REACHES:
            return {}
        found = {name: self._heard.moment(each, self.plan.shards)[0].low_watermark for name, each in domains.items()}
        return {name: low for name, low in found.items() if low is not None}

    @property
    def _now_us(self) -> int:
        return self._heard.now_us

    def _begin(self, job: PlanEvaluation, complete_from: int | None, since: int | None) -> None:
        del complete_from  # that of its inputs counts
        (query,) = job.queries
        fragments = [self.known.job_name(query, each) for each in query.fragments]
        self._results.begin(query, self._heard.complete_from(fragments), since)

    def _to_json(self) -> dict[str, Any]:
        return {**super()._to_json(), "heard": self._heard.to_json()}


class SecondStage(Stage):
    """The stage that evaluates the first stage's changes; see :class:`Stage`."""

    number = 1

    def _made(self, shard: int, plan: HostPlan, store: Store) -> StageShard:
        return SecondShard(shard, plan, store, self.command)


def _tables(messages: Iterable[Message]) -> dict[str, pa.Table]:
    """Return changes by job, in the order of the shards that sent them."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for message in messages:
        assert message.frame is not None
        found.setdefault(message.control["job"], []).append((message.control["shard"], message.frame))
    return {
        job: pa.concat_tables([from_frame(frame) for _, frame in sorted(each, key=lambda one: one[0])])
        for job, each in found.items()
    }
