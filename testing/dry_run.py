"""Plans and queries that run in this process, with the shards, frames and states of Spark queries."""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from ..api.definitions import definition_of
from ..api.stream import UpdateStream
from ..conf.deep_stack import on_deep_stack
from ..conf.errors import OptionError, QueryError
from ..conf.locations import checkpoint_location
from ..conf.options import duration_argument
from ..conf.units import parse_duration_us
from ..core.feedback.reports import StageReport
from ..core.rows.system_column import DELETED, SYSTEM, SYSTEM_TYPE, system_array
from ..hosting.host_plan import HostPlans, rehearse
from ..hosting.journal import Settings
from ..hosting.messages import Command, read_messages
from ..hosting.output import OutputControl, result_rows
from ..hosting.registry import RegisteredQuery, Registry, bind_registered
from ..hosting.scan import ScanStep
from ..hosting.stages import FirstShard, SecondShard
from ..language import Catalog
from ..operators.joins.plan import JoinPlan
from ..operators.joins.release.choice import ReleasePlanner
from ..operators.queue.queue import is_duration
from ..operators.queue.tick_planner import QueuePlanner
from ..operators.runtime.pack import INTERVAL, WEIGHT
from ..operators.runtime.ticks import FlushPlanner, TickPlanner
from ..operators.shards import sharded
from ..operators.tables.lookup import TableJoinPlan, indexed, joined
from ..operators.windows.shards.results import final_somewhere
from ..plan.fingerprint import check_same, fingerprint, places
from ..plan.nodes import Given, Map, Node, Queue, Reorder, StatefulNode, TableJoin, Transform, Window, walk
from .expressions import ComputedColumn, RowEvaluation
from .inputs import Checkpoint


@dataclasses.dataclass
class BatchOutput:
    """The output of a batch."""

    rows: pa.Table  # with the system column, and punctuation
    late: list[pa.Table]  # the late rows of operators


class DryRun:
    """A plan that runs batch by batch. It refuses steps that need Spark, and operators that share a place for state."""

    def __init__(self, plan: Node) -> None:
        self._plan = plan
        # Folders as a query's, of which only the names are needed.
        self._places: Mapping[StatefulNode, str] = places(plan, "checkpoint")
        self._operators = fingerprint(plan, self._places, (), checkpoint_location("checkpoint"))
        self._rows = {node: _evaluation(node) for node in walk(plan) if isinstance(node, Transform)}
        self._extra = {node: _extra_columns(node) for node in walk(plan) if isinstance(node, Queue)}

    def run(self, given: Mapping[str, pa.Table], checkpoint: Checkpoint) -> BatchOutput:
        """Run a batch of each input's rows, which have the system column, and update the checkpoint."""
        late: list[pa.Table] = []
        checkpoint.operators = self._operators
        return BatchOutput(self._after(self._plan, given, checkpoint, late), late)

    def due_us(self, checkpoint: Checkpoint) -> int | None:
        """Return when another batch has work without new rows; None if it has none."""
        found: list[int] = []
        for node, place in self._places.items():
            said = checkpoint.said(place)
            if isinstance(node, Queue) and any(report.waiting for report in said):
                ready = [report.ready_at_us for report in said if report.ready_at_us is not None]
                found.append(min(ready, default=0))
            elif isinstance(node, Reorder | Window) and any(report.due for report in said):
                found.append(0)
        return min(found, default=None)

    def check(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint of other operators."""
        known = {place: node for node, place in self._places.items()}
        if checkpoint.operators is not None:
            check_same(checkpoint.operators, self._operators)
        for place, shard in list(checkpoint.states):
            if place in known:
                form = sharded(known[place], lambda: None)
                form.shard(shard, form.plan, checkpoint.store(place, shard))

    def _after(
        self, node: Node, given: Mapping[str, pa.Table], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> pa.Table:
        before = [self._after(each, given, checkpoint, late) for each in node.inputs]
        schema = node.arrow
        match node:
            case Given():
                return given[node.name]
            case Transform():
                return self._rows[node].of(before[0])
            case Map():
                return pa.Table.from_batches(list(node.step(iter(before[0].to_batches()))), schema)
            case TableJoin():
                plan: TableJoinPlan = node.specification
                rows = checkpoint.tables[plan.location].select(plan.table.names).cast(plan.table)
                found = [
                    pa.Table.from_batches(list(joined(iter(before[0].to_batches()), indexed(rows, plan), plan)), schema)
                ]
            case StatefulNode():
                found = self._in_shards(node, before, checkpoint, late)
            case _:
                raise _no_step(node)
        tables = [table.select(schema.names).cast(schema) for table in found if table is not None]
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    def _in_shards(
        self, node: StatefulNode, before: list[pa.Table], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        """Run each shard that has frames or a message."""
        place = self._places[node]
        reports = checkpoint.said(place)
        form = sharded(node, lambda: final_somewhere(reports))
        left: dict[int, list[bytes]] = defaultdict(list)
        right: dict[int, list[bytes]] = defaultdict(list)
        for rows, (names, step) in zip(before, form.packing(range(form.shards)), strict=True):
            taken = self._with_extra(node, rows)
            for packed in step(iter((taken if names is None else taken.select(names)).to_batches())):
                for shard, frame, control in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                    (right if control == "right" else left)[shard].append(frame)
        messages = self._messages(node, reports, checkpoint)
        for shard in sorted({*left, *right, *messages}):
            operator = form.shard(shard, form.plan, checkpoint.store(place, shard))
            result, report = operator.run(left[shard], right[shard], checkpoint.batch, messages.get(shard))
            if operator.late is not None:
                late.append(operator.late)
            checkpoint.reports.setdefault(place, {})[shard] = report
            yield result

    def _with_extra(self, node: StatefulNode, rows: pa.Table) -> pa.Table:
        """Return rows with an operator's own columns, or in its order of columns."""
        if isinstance(node, Reorder):
            return rows.select(node.schema.names)
        for name, compute in self._extra[node].items() if isinstance(node, Queue) else ():
            rows = rows.append_column(name, compute(rows))
        return rows

    def _messages(self, node: StatefulNode, reports: list[Any], checkpoint: Checkpoint) -> dict[int, str]:
        """Return the messages of this batch's tick to shards."""
        place, planner = self._places[node], _planner(node, reports)
        if planner is None:
            return {}
        start = checkpoint.ticks.get(place) or planner.initial()
        tick = planner.plan(start, checkpoint.clock_us)
        if tick == start:
            return {}
        checkpoint.ticks[place] = tick
        return dict(planner.messages(tick))


class QueryRun:
    """A query that runs batch by batch, by the scan and the stages of its job with one shard each."""

    def __init__(self, text: str, streams: Mapping[str, UpdateStream], lateness: str | None) -> None:
        catalog = Catalog()
        for name, each in streams.items():
            catalog = catalog.with_stream(definition_of(name, each, updates=True))
        late_us = 0 if lateness is None else duration_argument("lateness", lateness)
        query = RegisteredQuery(_VERSION, "query", text, lateness_us=late_us)
        query = dataclasses.replace(query, bound=bind_registered(query, catalog))
        rehearse(query.query.plan, query.name, "table", query.buckets)
        registry = Registry(_VERSION, catalog, {query.name: query}, Settings("", 1))
        self._plans = HostPlans(lambda _: registry, (0,))
        self._formats = {name: each.plan.time_format for name, each in streams.items()}
        result = self._plans(_VERSION).queries[_VERSION].result
        self.key, self.schema = result.key, result.schema.append(pa.field(SYSTEM, SYSTEM_TYPE))

    def run(self, given: Mapping[str, pa.Table], checkpoint: Checkpoint) -> BatchOutput:
        """Run a batch of each stream's rows, and update the checkpoint. Raise QueryError if the query fails."""
        command, plan = Command(checkpoint.batch, _VERSION), self._plans(_VERSION)
        sent: list[Row] = []
        for name, rows in given.items():
            scan = ScanStep(lambda: command, self._plans, name, self._formats[name], keeps_late=True)
            sent += _sent(scan(iter(rows.to_batches())))
        first = FirstShard(0, plan, checkpoint.store("first", 0), command)
        second = SecondShard(0, plan, checkpoint.store("second", 0), command)
        for place, each in {"first": first, "second": second}.items():
            left = on_deep_stack(functools.partial(each.run, read_messages(sent)))
            sent = [] if left is None else _sent(left.to_batches())
            checkpoint.reports[place] = {0: StageReport(0, **each.holds)}
        frames: list[bytes] = []
        for row in sent:
            leaving = OutputControl.of(row.control)
            if leaving.kind == "failed":
                raise QueryError(leaving.reason.removeprefix("QueryError: "))
            frames += [row.frame] if leaving.kind == "rows" else []
        late = [_late(letters, rows.schema) for name, rows in given.items() for _, letters in first.letters(name)]
        return BatchOutput(_result(frames) if frames else self.schema.empty_table(), late)

    def due_us(self, checkpoint: Checkpoint) -> int | None:
        """Return when another batch has work without new rows; None if it has none."""
        return 0 if any(report.behind for place in ("first", "second") for report in checkpoint.said(place)) else None


_VERSION = 1


def _sent(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [Row(**row) for batch in batches for row in batch.to_pylist()]


def _result(frames: list[bytes]) -> pa.Table:
    found = result_rows(frames)
    system = system_array(
        source="", seq=found.seq, arrival_us=found.arrival_us, first_arrival_us=found.first_arrival_us,
        deleted=found.deleted,
    )  # fmt: skip
    return found.rows.append_column(SYSTEM, system)


def _late(letters: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return late rows as the stream had them."""
    gone = letters.column(DELETED).to_numpy() if DELETED in letters.column_names else None
    zeros = np.zeros(letters.num_rows, dtype=np.int64)
    system = system_array(source="", seq=zeros, arrival_us=zeros, deleted=gone)
    return letters.append_column(SYSTEM, system).select(schema.names)


def _evaluation(node: Transform) -> RowEvaluation:
    return RowEvaluation(node.step, node.inputs[0].arrow, node.fixed)


def _planner(node: StatefulNode, reports: list[Any]) -> TickPlanner | None:
    """Return the planner of an operator's ticks, which takes the shards' reports from a list instead of a folder."""
    plan: Any = node.specification
    slots = tuple(range(plan.shards))
    if isinstance(node, Queue):
        planner = QueuePlanner.of(slots, {**node.options, "feedback": ""})
        return dataclasses.replace(planner, reports=lambda: reports, served=list)
    if isinstance(node, Window | Reorder):
        return None if plan.flush_rows is None else FlushPlanner(slots, lambda: reports)
    if isinstance(plan, JoinPlan) and plan.release is not None and plan.release.adaptive:
        return ReleasePlanner(slots, lambda: reports, plan.release)
    return None


def _extra_columns(node: Queue) -> dict[str, Callable[[pa.Table], pa.Array | pa.ChunkedArray]]:
    """Return the columns to compute of each row before it is packed: its weight and its access interval."""
    schema = node.inputs[0].arrow
    found: dict[str, Callable[[pa.Table], pa.Array | pa.ChunkedArray]] = {}
    interval = node.access_interval
    if node.weight is not None:
        weight = ComputedColumn(node.weight, schema, "weight")
        found[WEIGHT] = lambda rows: pc.fill_null(_numbers(weight, rows), 1.0)
    if isinstance(interval, str) and is_duration(interval):
        us = pa.scalar(parse_duration_us(interval), pa.int64())
        found[INTERVAL] = lambda rows: pa.repeat(us, rows.num_rows)
    elif interval is not None:
        seconds = ComputedColumn(interval, schema, "interval")
        found[INTERVAL] = lambda rows: _micros(_numbers(seconds, rows))
    return found


def _numbers(computed: ComputedColumn, rows: pa.Table) -> pa.ChunkedArray:
    return computed.of(rows).column(0).cast(pa.float64())


def _micros(seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return seconds as microseconds; 0 for a null or a negative value."""
    micros = pc.round(pc.multiply(pc.fill_null(seconds, 0.0), 1e6), round_mode="half_towards_infinity")
    return pc.max_element_wise(micros, 0.0).cast(pa.int64())


def _no_step(node: Node) -> OptionError:
    return OptionError(
        f"a step that runs on Spark only: {node.text}",
        expected="steps on the streams that StreamTester gives",
        hint="take this one out of the function that is tested",
    )
