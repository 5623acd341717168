"""The first stage: takes rows of streams, and emits finished results and changes for the second stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl
import pyarrow as pa

from ..core.rows.event_times import NO_TIME, event_time_us
from ..core.rows.exact_integers import LOWEST
from ..core.rows.frames import from_frame, to_frame
from ..operators.relations.operator import FAILURES, attributed
from ..operators.relations.plan.nodes import Stream
from ..operators.state.store import Store
from .evaluations import BatchContext, PlanEvaluation, StepResult, Watermarks
from .host_plan import Group, HostPlan, HostPlans, PlacedQuery, PlanFragment
from .messages import Command, Message, Outbox, by_kind, control_of
from .output import ResultOutput
from .results import Stamp
from .scan import divided, in_order, oldest_arrival, rows_of, shards_of, stored_rows
from .stage import Stage, StageState


class FirstShard:
    """One batch of one shard of the first stage."""

    def __init__(self, shard: int, plan: HostPlan, store: Store, storage: Mapping[str, str] | None = None) -> None:
        self._shard = shard
        self._storage = storage or {}
        self._plan = plan
        self.state = StageState(plan, store)
        self._known = self.state.known
        self._watermarks = Watermarks(self.state.saved("watermarks"))
        self._missed: dict[str, bool] = self.state.saved("missed")
        self._out = Outbox(plan.slots)

    def run(self, messages: list[Message], command: Command) -> pa.Table:
        plan, known = self._plan, self._known
        kinds = by_kind(messages)
        known.follow(plan)
        self._unroutable(kinds.get("unroutable", []))
        moments = self._watermarks.moments(
            {each.domain.name: each.domain for each in plan.queries.values()}.values(), kinds.get("scan", [])
        )
        tables: dict[str, list[pa.Table]] = {}
        for message in kinds.get("rows", []):
            assert message.frame is not None
            tables.setdefault(message.control["routing"], []).append(from_frame(message.frame))
        rows = {routing: in_order(each) for routing, each in tables.items()}
        firsts: dict[str, int] = {}
        whole: dict[str, int | None] = {}
        results = ResultOutput(plan, known, self._out, self.state.deferred, command.served)
        jobs = self._jobs()
        self.state.evaluations.keep(set(jobs))
        self.state.keep({_waits(group, stream) for group, _ in jobs.values() for stream in group.routings})
        # Rows that wait for a first low-watermark wait only for evaluations that exist.
        newest = {name: moments[group.domain.name].newest for name, (group, _) in jobs.items()}
        self._missed = {name: self._missed.get(name, newest[name] != LOWEST) for name in jobs}
        for name, (group, some) in jobs.items():
            moment = replace(moments[group.domain.name], missed=self._missed[name])
            taken = self._taken(group, rows, moment)
            if taken is None:
                continue
            oldest = [found for table in taken.values() if (found := oldest_arrival(table)) is not None]
            first = min(oldest, default=moment.now_us)
            firsts[group.domain.name] = min(first, firsts.get(group.domain.name, first))
            streams = {stream: rows_of(table) for stream, table in taken.items() if table.num_rows}
            stored = stored_rows(plan, group, self._shard, self._storage)
            stepped = self.state.evaluations.step(
                name, group.domain.clock, some, moment, streams, {}, stored, clears=known.clears
            )
            stamp = Stamp(command.batch, self._shard, plan.shards, moment.now_us, first)
            whole |= self._put(group, some, stepped, stamp, results, moment.since)
        now_us = max((each.now_us for each in moments.values()), default=0)
        results.close(Stamp(command.batch, self._shard, plan.shards, now_us, now_us))
        domains = {
            name: [each.low_watermark, firsts.get(name, each.now_us), each.since] for name, each in moments.items()
        }
        self._out.put_to_all(control_of("heard", shard=self._shard, domains=domains, whole=whole, now=now_us))
        self.state.save(watermarks=self._watermarks.to_json(), missed=self._missed)
        return self._out.table()

    def _jobs(self) -> dict[str, tuple[Group, dict[str, PlanEvaluation]]]:
        """Return the group and the jobs of each evaluation in this shard."""
        found: dict[str, tuple[Group, dict[str, PlanEvaluation]]] = {}
        for query in self._known.running(self._plan):
            for piece in query.pieces:
                group = self._plan.groups[piece.group]
                if group.shard not in (None, self._shard):
                    continue
                _, jobs = found.setdefault(group.name, (group, {}))
                name = self._known.job_name(query, piece)
                queries = (*jobs[name].queries, query) if name in jobs else (query,)
                jobs[name] = PlanEvaluation(
                    name, piece.fragment.plan, queries, piece, collapse=_collapses(query, piece)
                )
        return found

    def _unroutable(self, messages: list[Message]) -> None:
        reasons = {message.control["routing"]: message.control["reason"] for message in messages}
        for query in self._plan.queries.values():
            routings = {name for piece in query.pieces for name in self._plan.groups[piece.group].routings.values()}
            for name in sorted(routings & reasons.keys()):
                self._known.fail([query.id], reasons[name])

    def _taken(self, group: Group, rows: dict[str, pa.Table], moment: BatchContext) -> dict[str, pa.Table] | None:
        """Return a group's rows by stream; None if they have to wait for a first low-watermark."""
        found: dict[str, pa.Table] = {}
        waits = moment.low_watermark is None and group.domain.clock == "event"
        for stream, routing in group.routings.items():
            came = [rows[routing]] if routing in rows else []
            name = _waits(group, stream)
            if waits:
                for table in came:
                    self.state.waiting.put(name, table)
                    self.state.hold(name, _least(table, self._plan.stream(stream)), moment.now_us)
                continue
            self.state.release(name)
            came = [*self.state.waiting.take(name), *came]
            if came:
                found[stream] = in_order(came) if len(came) > 1 else came[0]
        return None if waits else found

    def _put(
        self,
        group: Group,
        jobs: Mapping[str, PlanEvaluation],
        stepped: StepResult,
        stamp: Stamp,
        results: ResultOutput,
        since: int | None,
    ) -> dict[str, int | None]:
        """Emit a step's result; return the time from which each new job for the second stage is complete."""
        whole: dict[str, int | None] = {}
        for name, reason in stepped.failed.items():
            self._known.fail(jobs[name].ids, reason)
        for name, whole_from in stepped.begun.items():
            if _is_finished(jobs[name]):
                results.begin(jobs[name].queries[0], whole_from, since)
            else:
                whole[name] = whole_from
        for name, changes in stepped.changes.items():
            if _is_finished(jobs[name]):
                results.take(jobs[name].queries[0], changes, stamp)
            else:
                self._send(jobs[name], changes)
        results.late(group.domain, jobs.values(), stepped)
        return whole

    def _send(self, job: PlanEvaluation, changes: pl.DataFrame) -> None:
        piece = job.piece
        assert piece is not None
        assert piece.fragment.onward is not None
        control = control_of("changes", job=job.name, shard=self._shard)
        table = changes.to_arrow(compat_level=pl.CompatLevel.oldest())
        if piece.shard is not None:
            self._out.put(piece.shard, control, to_frame(table))
            return
        try:
            shard = shards_of(changes, piece.fragment.onward, piece.fragment.plan.schema, self._plan.shards)
        except FAILURES as error:
            self._known.fail(job.ids, str(attributed(error)))
            return
        for number, at in divided(shard, self._plan.shards):
            self._out.put(number, control, to_frame(table.take(pa.array(at))))


class FirstStage(Stage):
    """The stage that evaluates streams; see :class:`~.stage.Stage`.

    `storage` has the object store's options for stored relations. It is never written to a file, since it may have
    secrets.
    """

    state = "upstream_queries_first_v1"
    shard = FirstShard

    def __init__(
        self,
        commands: Callable[[], Command],
        plans: HostPlans,
        storage: Mapping[str, str] | None = None,
        reports: str | None = None,
    ) -> None:
        super().__init__(commands, plans, reports)
        self._storage = storage or {}

    def _made(self, shard: int, plan: HostPlan, store: Store) -> FirstShard:
        return FirstShard(shard, plan, store, self._storage)


def _collapses(query: PlacedQuery, piece: PlanFragment) -> bool:
    """Return whether the net changes of a piece are enough."""
    if piece.fragment.onward is None:
        return query.result.kind == "latest"
    return not piece.fragment.every_change


def _least(rows: pa.Table, stream: Stream) -> int | None:
    """Return the least event time of some rows; None if they have none."""
    times = event_time_us(rows.column(stream.event_time), None, "UTC")
    times = times[times != NO_TIME]
    return int(times.min()) if len(times) else None


def _waits(group: Group, stream: str) -> str:
    return f"{group.name}/{stream}"


def _is_finished(job: PlanEvaluation) -> bool:
    return job.piece is not None and job.piece.fragment.onward is None
