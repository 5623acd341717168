"""Plans compiled to run in this process, with the shards, frames and states of Spark queries."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import OptionError
from ..conf.locations import checkpoint_location
from ..conf.units import parse_duration_us
from ..operators.grouped.plan import GroupPlan, GroupWindowPlan
from ..operators.grouped.shard import GroupShard
from ..operators.grouped.window_shard import WindowGroupShard, WindowVersionShard
from ..operators.joins.band import LEFT, SIDES
from ..operators.joins.latest_plan import LatestJoinPlan, VersionPlan
from ..operators.joins.latest_shard import LatestJoinShard, VersionShard
from ..operators.joins.pack import join_pack, newest_pack, own_pack
from ..operators.joins.plan import AsOfPlan, JoinPlan
from ..operators.joins.processor import join_shard
from ..operators.joins.release.tick_planner import ReleasePlanner
from ..operators.joins.shard import JoinShard
from ..operators.queue.build import is_duration, queue_pack
from ..operators.queue.control import Control, ShardPlan
from ..operators.queue.shard import QueueShard
from ..operators.queue.tick_planner import QueuePlanner
from ..operators.reorder.build import named
from ..operators.reorder.plan import ReorderPlan
from ..operators.reorder.shard import ReorderShard
from ..operators.runtime.pack import INTERVAL, WEIGHT, pack
from ..operators.state.store import Store
from ..operators.tables.lookup import TableJoinPlan, indexed, joined
from ..operators.windows.shards.pack import final_somewhere, frames_of
from ..operators.windows.shards.plan import WindowPlan
from ..operators.windows.shards.processor import window_shard
from ..operators.windows.shards.stream_numbers import NumberingPlan, NumberingShard, numbering_pack
from ..plan.fingerprint import check_late_locations, check_same, fingerprint, places
from ..plan.newest_nodes import GroupBy, LatestJoin, Versions, WindowedGroups, WindowVersions
from ..plan.nodes import (
    Given,
    Map,
    Node,
    NumberRows,
    Queue,
    Reorder,
    StatefulNode,
    TableJoin,
    TimeJoin,
    Transform,
    Window,
    walk,
)
from .expressions import ComputedColumn, RowEvaluation, value_of
from .inputs import Checkpoint

Frames = dict[int, list[bytes]]


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
        check_late_locations(plan)
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
                _shard_of(known[place], shard, checkpoint.store(place, shard))

    def _after(
        self, node: Node, given: Mapping[str, pa.Table], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> pa.Table:
        before = [self._after(each, given, checkpoint, late) for each in node.inputs]
        schema = _arrow(node)
        match node:
            case Given():
                return given[node.name]
            case Transform():
                return self._rows[node].of(before[0])
            case Map():
                return pa.Table.from_batches(list(node.step(iter(before[0].to_batches()))), schema)
            case Queue():
                found = self._queued(node, before[0], checkpoint)
            case Window():
                found = self._windowed(node, before[0], checkpoint, late)
            case NumberRows():
                found = self._numbered(node, before[0], checkpoint)
            case Reorder():
                found = self._reordered(node, before, checkpoint, late)
            case TimeJoin():
                found = self._joined(node, before, checkpoint, late)
            case Versions():
                found = self._versions(node, before[0], checkpoint)
            case TableJoin():
                plan: TableJoinPlan = node.specification
                rows = checkpoint.tables[plan.location].select(plan.table.names).cast(plan.table)
                found = [
                    pa.Table.from_batches(list(joined(iter(before[0].to_batches()), indexed(rows, plan), plan)), schema)
                ]
            case LatestJoin() | GroupBy():
                found = self._newest(node, before, checkpoint)
            case WindowVersions() | WindowedGroups():
                found = self._windowed_groups(node, before[0], checkpoint, late)
            case _:
                raise _no_step(node)
        tables = [table.select(schema.names).cast(schema) for table in found if table is not None]
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    def _queued(self, node: Queue, rows: pa.Table, checkpoint: Checkpoint) -> Iterable[pa.Table | None]:
        plan, place = node.specification, self._places[node]
        assert isinstance(plan, ShardPlan)
        for name, compute in self._extra[node].items():
            rows = rows.append_column(name, compute(rows))
        frames = _frames(queue_pack(node, plan, range(plan.shards))(iter(rows.to_batches())))
        planner = _planner(node, plan, checkpoint.said(place))
        start = checkpoint.ticks.get(place) or planner.initial()
        tick = planner.plan(start, checkpoint.clock_us)
        controls: dict[int, Control] = {}
        if tick != start:
            checkpoint.ticks[place] = tick
            controls = dict(enumerate(planner.controls(tick)))
        for shard in sorted(frames.keys() | controls.keys()):
            queue = QueueShard(shard, plan, checkpoint.store(place, shard))
            result, report = queue.run(frames.get(shard, []), controls.get(shard))
            _report(checkpoint, place, shard, report)
            yield result

    def _windowed(
        self, node: Window, rows: pa.Table, checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        plan, place = node.specification, self._places[node]
        assert isinstance(plan, WindowPlan)
        due = {report.shard for report in checkpoint.said(place) if report.due}
        frames: Frames = {}
        if rows.num_rows:
            final = final_somewhere(checkpoint.said(place))
            frames = _frames([frames_of(rows, plan, range(plan.shards), final)])
        for shard in sorted(frames.keys() | due):
            windows = window_shard(shard, plan, checkpoint.store(place, shard))
            result, report = windows.run(frames.get(shard, []), checkpoint.batch)
            if windows.late is not None:
                late.append(windows.late)
            _report(checkpoint, place, shard, report)
            yield result

    def _numbered(self, node: NumberRows, rows: pa.Table, checkpoint: Checkpoint) -> Iterable[pa.Table | None]:
        plan = node.specification
        assert isinstance(plan, NumberingPlan)
        packing = numbering_pack(0)
        return self._in_shards(node, [_frames(packing(iter(rows.select(plan.needed).to_batches())))], checkpoint)

    def _reordered(
        self, node: Reorder, before: list[pa.Table], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        plan, place = node.specification, self._places[node]
        assert isinstance(plan, ReorderPlan)
        packing = pack(plan.by, range(plan.shards), None, coalesce=False, operator=plan.name)
        packed: list[pa.RecordBatch] = []
        for at, rows in enumerate(before):
            batches = iter(rows.select(node.schema.names).to_batches())
            packed += packing(named(plan.inputs[at])(batches) if plan.inputs else batches)
        frames = _frames(packed)
        due = {report.shard for report in checkpoint.said(place) if report.due} if plan.flush_rows else set[int]()
        for shard in sorted(frames.keys() | due):
            operator = ReorderShard(shard, plan, checkpoint.store(place, shard))
            result, report = operator.run(frames.get(shard, []), checkpoint.batch)
            if operator.refused is not None:
                late.append(operator.refused)
            _report(checkpoint, place, shard, report)
            yield result

    def _joined(
        self, node: TimeJoin, before: list[pa.Table], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        plan = node.specification
        assert isinstance(plan, JoinPlan | AsOfPlan)
        frames: list[Frames] = []
        for at, (rows, side, name) in enumerate(zip(before, plan.sides, SIDES, strict=True)):
            packing = join_pack(side.on, range(plan.shards), name, whole=plan.takes_whole(at))
            frames.append(_frames(packing(iter(rows.select(side.schema.names).to_batches()))))
        if isinstance(plan, AsOfPlan) or plan.release is None:
            return self._in_shards(node, frames, checkpoint)
        return self._joined_in_order(node, plan, frames, checkpoint, late)

    def _joined_in_order(
        self, node: TimeJoin, plan: JoinPlan, frames: list[Frames], checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        place, mode = self._places[node], None
        assert plan.release is not None
        if plan.release.adaptive:
            planner = ReleasePlanner(tuple(range(plan.shards)), lambda: checkpoint.said(place), plan.release)
            start = checkpoint.ticks.get(place) or planner.initial()
            tick = planner.plan(start, checkpoint.clock_us)
            if tick != start:
                checkpoint.ticks[place], mode = tick, tick["mode"]
        shards = range(plan.shards) if mode else sorted(set[int]().union(*frames))
        for shard in shards:
            operator = JoinShard(shard, plan, checkpoint.store(place, shard))
            left, right = (each.get(shard, []) for each in frames)
            result, report = operator.run(left, right, checkpoint.batch, mode)
            if operator.late is not None:
                late.append(operator.late)
            _report(checkpoint, place, shard, report)
            yield result

    def _versions(self, node: Versions, rows: pa.Table, checkpoint: Checkpoint) -> Iterable[pa.Table | None]:
        plan = node.specification
        assert isinstance(plan, VersionPlan)
        side = plan.side
        packing = own_pack(side, side.key, range(plan.shards), SIDES[LEFT])
        return self._in_shards(node, [_frames(packing(iter(rows.select(side.schema.names).to_batches())))], checkpoint)

    def _newest(
        self, node: LatestJoin | GroupBy, before: list[pa.Table], checkpoint: Checkpoint
    ) -> Iterable[pa.Table | None]:
        plan = node.specification
        assert isinstance(plan, LatestJoinPlan | GroupPlan)
        sides = plan.sides if isinstance(plan, LatestJoinPlan) else (plan.side,)
        frames: list[Frames] = []
        for rows, side, name in zip(before, sides, SIDES, strict=False):
            columns, packing = newest_pack(side, range(plan.shards), name)
            frames.append(_frames(packing(iter(rows.select(columns).to_batches()))))
        return self._in_shards(node, frames, checkpoint)

    def _windowed_groups(
        self, node: WindowVersions | WindowedGroups, rows: pa.Table, checkpoint: Checkpoint, late: list[pa.Table]
    ) -> Iterable[pa.Table | None]:
        plan, place = node.specification, self._places[node]
        assert isinstance(plan, GroupWindowPlan)
        groups = isinstance(node, WindowedGroups)
        by, schema = (plan.group, plan.taken) if groups else (plan.key, plan.window.schema)
        packing = join_pack(by, range(plan.shards), SIDES[LEFT], whole=True)
        frames = _frames(packing(iter(rows.select(schema.names).to_batches())))
        for shard in sorted(frames):
            operator = (WindowGroupShard if groups else WindowVersionShard)(shard, plan, checkpoint.store(place, shard))
            result, report = operator.run(frames[shard], checkpoint.batch)
            if operator.late is not None:
                late.append(operator.late)
            _report(checkpoint, place, shard, report)
            yield result

    def _in_shards(self, node: StatefulNode, frames: list[Frames], checkpoint: Checkpoint) -> Iterable[pa.Table | None]:
        """Run each shard that has frames of a side."""
        place = self._places[node]
        for shard in sorted(set[int]().union(*frames)):
            operator: Any = _shard_of(node, shard, checkpoint.store(place, shard))
            result, report = operator.run(*(each.get(shard, []) for each in frames), checkpoint.batch)
            _report(checkpoint, place, shard, report)
            yield result


def _evaluation(node: Transform) -> RowEvaluation:
    return RowEvaluation(node.step, _arrow(node.inputs[0]), node.fixed)


def _arrow(node: Node) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(node.schema, timezone="UTC")


def _frames(packed: Iterable[pa.RecordBatch]) -> Frames:
    """Return the frames of each shard."""
    found: Frames = defaultdict(list)
    for batch in packed:
        for shard, frame in zip(batch.column("slot").to_pylist(), batch.column("frame").to_pylist(), strict=True):
            found[shard].append(frame)
    return found


def _report(checkpoint: Checkpoint, place: str, shard: int, report: Any) -> None:
    checkpoint.reports.setdefault(place, {})[shard] = report


def _planner(node: Queue, plan: ShardPlan, reports: list[Any]) -> QueuePlanner:
    """Return the planner of the queue's ticks, which takes the shards' reports from a list instead of a folder."""
    planner = QueuePlanner.of(tuple(range(plan.shards)), {**node.options, "feedback": ""})
    return dataclasses.replace(planner, reports=lambda: reports, served=list)


def _shard_of(node: StatefulNode, shard: int, store: Store) -> object:
    """Return a shard, which checks its state when it is made."""
    plan = node.specification
    if isinstance(plan, ShardPlan):
        return QueueShard(shard, plan, store)
    if isinstance(plan, WindowPlan):
        return window_shard(shard, plan, store)
    if isinstance(plan, JoinPlan | AsOfPlan):
        return join_shard(shard, plan, store)
    if isinstance(plan, GroupPlan):
        return GroupShard(shard, plan, store)
    if isinstance(plan, GroupWindowPlan):
        return (WindowGroupShard if isinstance(node, WindowedGroups) else WindowVersionShard)(shard, plan, store)
    if isinstance(plan, LatestJoinPlan):
        return LatestJoinShard(shard, plan, store)
    if isinstance(plan, VersionPlan):
        return VersionShard(shard, plan, store)
    if isinstance(plan, NumberingPlan):
        return NumberingShard(plan, store)
    assert isinstance(plan, ReorderPlan)
    return ReorderShard(shard, plan, store)


def _extra_columns(node: Queue) -> dict[str, Callable[[pa.Table], pa.Array | pa.ChunkedArray]]:
    """Return the columns to compute of each row before it is packed: its weight and its access interval."""
    schema = _arrow(node.inputs[0])
    found: dict[str, Callable[[pa.Table], pa.Array | pa.ChunkedArray]] = {}
    interval = node.access_interval
    if node.weight is not None:
        weight = value_of(node.weight, schema)
        found[WEIGHT] = lambda rows: pc.fill_null(_numbers(weight, rows), 1.0)
    if isinstance(interval, str) and is_duration(interval):
        us = pa.scalar(parse_duration_us(interval), pa.int64())
        found[INTERVAL] = lambda rows: pa.repeat(us, rows.num_rows)
    elif interval is not None:
        seconds = value_of(interval, schema)
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
