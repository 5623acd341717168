"""Compilation of a logical plan to Spark, bound to one checkpoint."""

from __future__ import annotations

import dataclasses
import logging
import os
import weakref
from collections.abc import Collection, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf.column_names import quoted
from ..conf.locations import Place, absolute_location, check_apart, checkpoint_location, is_client, real_location
from ..conf.session import check_state_store
from ..conf.units import parse_duration_us
from ..core.feedback.checkpoint_layout import (
    beside_checkpoint,
    dead_letters_folder,
    has_begun,
    read_plan_record,
    write_plan_record,
    write_steps,
)
from ..core.feedback.reports import LeftOutFigures, WindowReport, read_reports
from ..core.pushdown.at_source import paths_read, source_options
from ..core.rows.buckets import integers_with_hash
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM
from ..delta_format.append_table import dead_letter_table
from ..plan.explain import fusable, plan_steps
from ..plan.fingerprint import (
    check_same,
    fingerprint,
    from_json,
    fused_as,
    operators,
    places,
    to_json,
)
from ..plan.nodes import (
    Choice,
    Filter,
    InputRows,
    Intake,
    ManyStreams,
    Map,
    Node,
    Queue,
    Reorder,
    RowStep,
    StatefulNode,
    TableJoin,
    Transform,
    Window,
    check_complete,
    joins_tables,
    walk,
)
from ..storage.folder import folder_at
from .ingest.plan import IntakePlan
from .ingest.tick_planner import SilentFeedTicks, silent_feed_options
from .joins.plan import JoinPlan
from .joins.release.choice import ReleaseTicks
from .queue.queue import ShardPlan, is_duration
from .queue.tick_planner import QueueTicks
from .reorder.shard import ReorderPlan
from .runtime.feeds import without_single_keys
from .runtime.pack import INTERVAL, WEIGHT, unpack
from .runtime.shard import DeadLetters, OperatorProcessor
from .runtime.steps import InShards, PhysicalStep, choosing
from .runtime.ticks import FlushSource, TickSource, with_ticks
from .shards import ShardedOperator, sharded
from .tables.lookup import TableJoinPlan
from .tables.versions import build_table_join
from .windows.shards.plan import WindowPlan
from .windows.shards.results import check_aggregates, check_settings, final_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from ..core.pushdown.source_steps import ArrowStep


_LOG = logging.getLogger("upstream")


def places_read(plan: Node) -> tuple[Place, ...]:
    """Return the paths and patterns that a plan's sources read, and the tables that it joins."""
    found: dict[str, str] = {}
    for node in walk(plan):
        if isinstance(node, InputRows | Intake):
            found |= dict.fromkeys(paths_read(node.frame), "the source")
        elif isinstance(node, TableJoin) and isinstance(node.specification, TableJoinPlan):
            found[node.specification.location] = "the joined table"
    return tuple((name, place) for place, name in found.items())


def places_aside(plan: Node) -> tuple[Place, ...]:
    """Return the distinct tables of dead letters that the inputs name."""
    found: dict[str, Place] = {}
    for node in walk(plan):
        given: dict[str, str | None] = {}
        if isinstance(node, Intake):
            given["dead_letters"] = node.dead_letters
        if isinstance(node, InputRows):
            given["deadLetters"] = (source_options(node.frame) or {}).get("deadletters")
        found |= {real_location(place): (name, place) for name, place in given.items() if place is not None}
    return tuple(found.values())


def letters_location(node: Node, checkpoint: str | os.PathLike[str]) -> str:
    """Return the table of a step's dead letters: that of its inputs, or the one below the checkpoint."""
    named = [place for _, place in places_aside(node)]
    return absolute_location(named[0] if named else dead_letters_folder(checkpoint))


def late_letters(step: StatefulNode, checkpoint: str | os.PathLike[str]) -> str:
    """Return the table with an operator's late rows, which is made if there is none: the first may come later."""
    place = letters_location(step, checkpoint)
    dead_letter_table(folder_at(place)).ready()
    return place


def check_aside(plan: Node, checkpoint: str | os.PathLike[str] | None) -> None:
    """Raise OptionError if a table of dead letters overlaps with a checkpoint or a path that is read."""
    aside = [each for each in places_aside(plan) if beside_checkpoint(each, checkpoint)]
    if aside:
        known = () if checkpoint is None else (("the checkpoint", os.fspath(checkpoint)),)
        for each in aside:
            check_apart([each], [*known, *places_read(plan)])


_PASSES = "__upstream_passes"


def on_spark(step: RowStep, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    """Return the rows after a step. The columns `fixed` are always kept: the key, the time, the system column."""
    return _filtered(step, df, fixed) if isinstance(step, Filter) else _chosen(step, df, fixed)


def _filtered(step: Filter, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    condition = step.condition
    chosen = F.expr(condition) if isinstance(condition, str) else condition
    marks = [F.coalesce(F.col(f"{SYSTEM}.{mark}"), F.lit(False)) for mark in ("punctuation", "deleted")]
    passes = marks[0] | marks[1] | F.coalesce(chosen, F.lit(False))
    if step.on_leave == "keep":
        return df.where(passes)
    stays, marked = F.col(_PASSES), F.col(SYSTEM).withField("deleted", F.lit(True))

    def leaving(name: str) -> Column:
        """Return the column, null in tombstones: computations that the condition guards must not see their values."""
        column = F.col(quoted(name))
        if name in fixed and name != SYSTEM:
            return column
        return F.when(stays, column).otherwise(marked if name == SYSTEM else F.lit(None)).alias(name)

    # The condition becomes a column first, so that it is computed once, even if it is costly or random.
    return df.withColumn(_PASSES, passes).select(*[leaving(name) for name in df.columns])


def _chosen(step: Choice, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    def column(given: str | Column) -> Column:
        if not isinstance(given, str):
            return given
        return F.col(quoted(given)) if given in df.columns else F.expr(given)

    kept = [F.col(quoted(name)) for name in fixed if name != SYSTEM]
    own = [column(each) for each in step.columns if not (isinstance(each, str) and each in fixed)]
    return df.select(*kept, *own, F.col(SYSTEM))


# The compiled form of each node, by the folders and stages of the operators before it. Later steps find a column that a
# user took from a stream's DataFrame only if they build on the same DataFrame.
_BUILT: weakref.WeakKeyDictionary[Node, dict[tuple[tuple[str, bool], ...], PhysicalStep]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class BoundStream:
    """A stream on Spark, with one checkpoint."""

    plan: Node
    rows: PhysicalStep

    @property
    def df(self) -> DataFrame:
        return self.rows.df

    @property
    def schema(self) -> StructType:
        # Rows in shards need no DataFrame to have a schema.
        return self.rows.schema if isinstance(self.rows.base, InShards) else self.rows.df.schema

    @property
    def key(self) -> Key:
        """The update key's columns."""
        return self.plan.key

    @property
    def time(self) -> str | None:
        """The column of the event time."""
        return self.plan.time

    @property
    def shards(self) -> int | None:
        """The number of parts of the keys, each in one task; None if keys are not divided."""
        return self.plan.shards

    @property
    def inputs(self) -> tuple[Place, ...]:
        """The paths that its sources read, and the tables that it joins."""
        return places_read(self.plan)

    @property
    def aside(self) -> tuple[Place, ...]:
        """The tables of dead letters that its inputs name."""
        return places_aside(self.plan)

    def record(self, checkpoint: str) -> None:
        """Record the steps below the query's checkpoint, as :func:`record_steps`."""
        record_steps(self.plan, checkpoint)

    def check_every_row(self, otherwise: str) -> None:
        """Refuse a stream in which rows are missing or repeated; `otherwise` is the wrong result."""
        check_complete(self.plan.left_out, otherwise)

    def without_single_keys(self) -> BoundStream:
        """Return the stream without punctuation of single keys, for a table whose key lacks some of their columns."""
        return dataclasses.replace(self, rows=self.rows.then(without_single_keys(self.key), self.plan.schema))

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None:
        return self.rows.in_arrow(step, schema)


def bind(plan: Node, checkpoint: str | os.PathLike[str] | None) -> BoundStream:
    """Build a plan on Spark, as :func:`bind_together`."""
    found, fused = _bound_to(plan, checkpoint)
    return BoundStream(plan, _build(plan, _PlanFolders(found, fused, checkpoint)))


def bind_together(plans: Sequence[Node], checkpoint: str | os.PathLike[str] | None) -> list[BoundStream]:
    """Build the plans of one query's streams on Spark.

    `checkpoint` is the query's; it may be None if no operator reports below it. Raise OptionError if it is missing or
    two operators would write to one place. Raise CheckpointError if it belongs to other operators, and
    EnvironmentMissingError if the state store cannot hold their state.
    """
    first = plans[0]
    whole = ManyStreams(first.key, first.time, first.schema, inputs=tuple(plans))
    found, fused = _bound_to(whole, checkpoint)
    if checkpoint is not None:
        record_steps(whole, checkpoint)
    return [BoundStream(plan, _build(plan, _PlanFolders(found, fused, checkpoint))) for plan in plans]


def record_steps(plan: Node, checkpoint: str | os.PathLike[str]) -> None:
    """Record a query's steps below its checkpoint, unless that is on a Connect server. A failure is only a warning."""
    if is_client(plan.session):
        return
    place = checkpoint_location(os.fspath(checkpoint))
    folders = places(plan, place)
    fused = in_stages(plan, folders, place)[0] if folders else fusable(plan)
    steps = [each._asdict() for each in plan_steps(plan, folders, fused, place)]
    folder = folder_at(place)
    LeftOutFigures("the record of the steps", folder, _LOG).attempt(lambda: write_steps(folder, steps))


def _bound_to(
    plan: Node, checkpoint: str | os.PathLike[str] | None
) -> tuple[Mapping[StatefulNode, str], Collection[StatefulNode]]:
    """Return each operator's folder, and the operators that share a stage; record them in the checkpoint."""
    found = places(plan, checkpoint)
    if found:
        check_state_store(plan.session, next(iter(found)).text)
    check_aside(plan, checkpoint)
    fused, record = in_stages(plan, found, checkpoint)
    if record is not None:
        assert checkpoint is not None
        write_plan_record(os.fspath(checkpoint), record)
    return found, fused


def in_stages(
    plan: Node, folders: Mapping[StatefulNode, str], checkpoint: str | os.PathLike[str] | None
) -> tuple[Collection[StatefulNode], Any]:
    """Return the operators that run in the stage before them, and the record to write to the checkpoint, if any.

    Spark numbers its stateful stages, so a query that has begun keeps its stages. Without a known checkpoint, every
    operator has a stage. Raise CheckpointError if the checkpoint belongs to other operators.
    """
    # Without operators, a single stream does not read the checkpoint: this process may have no access to it.
    if checkpoint is None or not (folders or isinstance(plan, ManyStreams)):
        return frozenset[StatefulNode](), None
    place, fused = os.fspath(checkpoint), fusable(plan)
    if has_begun(folder_at(checkpoint_location(place))):
        was = from_json(read_plan_record(place) or ())  # streams without operators record nothing
        fused = fused_as(plan, was, fused)
        check_same(was, fingerprint(plan, folders, fused, checkpoint_location(place)))
        return fused, None
    return fused, to_json(fingerprint(plan, folders, fused, checkpoint_location(place))) if folders else None


class _PlanFolders(NamedTuple):
    """The operators' folders, those that share a stage, and the query's checkpoint."""

    folders: Mapping[StatefulNode, str]
    fused: Collection[StatefulNode]
    checkpoint: str | os.PathLike[str] | None


def _build(node: Node, binding: _PlanFolders) -> PhysicalStep:
    before = [_build(each, binding) for each in node.inputs]
    known = _BUILT.setdefault(node, {})
    name = tuple((binding.folders[each], each in binding.fused) for each in operators(node))
    if joins_tables(node):
        name += ((str(_checkpoint(binding)), False),)
    if name not in known:
        known[name] = _built(node, before, binding)
    return known[name]


def _built(node: Node, before: list[PhysicalStep], binding: _PlanFolders) -> PhysicalStep:
    match node:
        case InputRows():
            return PhysicalStep(node.frame, node.schema)
        case Transform():
            return PhysicalStep(on_spark(node.step, before[0].df, node.fixed), node.schema)
        case Map():
            return before[0].then(node.step, node.schema)
        case TableJoin():
            return build_table_join(node, before[0], _checkpoint(binding))
        case StatefulNode():
            return _in_shards(node, before, binding)
        case _:
            raise TypeError(f"{type(node).__name__} is not a step that can be built on Spark")


def _checkpoint(binding: _PlanFolders) -> str | None:
    return None if binding.checkpoint is None else os.fspath(binding.checkpoint)


def _in_shards(node: StatefulNode, before: Sequence[PhysicalStep], binding: _PlanFolders) -> PhysicalStep:
    """Return the output of an operator in shards, in the stage of the operator before it if they share one."""
    assert binding.checkpoint is not None
    folder, place = binding.folders[node], letters_location(node, binding.checkpoint)
    late = DeadLetters(place, node.name if isinstance(node, Intake) else folder, "late") if node.late_aside else None
    malformed: DeadLetters | None = None
    inputs = list(before)
    extra: dict[str, Column] = {}
    fused = node in binding.fused
    match node:
        case Intake():
            malformed = DeadLetters(place, node.name, "malformed")
            inputs = [_with_columns(PhysicalStep(node.frame, node.schema), node.columns)]
        case Queue():
            extra = _extra_columns(node)
            inputs = [_with_columns(before[0], extra)]
        case Reorder():
            inputs = [_as_named(each, node.schema) for each in before]
        case Window(specification=WindowPlan() as plan):
            for report in read_reports(folder, WindowReport):
                check_settings(report.plan, plan)
                check_aggregates(report.aggregates, report.state, plan)
        case _:
            pass
    form = sharded(node, partial(final_in, None if fused else folder), whole_rows=late is not None)
    processor = OperatorProcessor(form.shard, form.plan, folder, late, malformed)
    if fused:
        return PhysicalStep(_in_stage(form, inputs[0], processor), node.schema)
    slots = integers_with_hash(range(form.shards))
    packing = zip(inputs, form.packing(slots), strict=True)
    packed = reduce(
        lambda left, right: left.union(right), [rows.packed(step, names) for rows, (names, step) in packing]
    )
    ticks = _ticks(node, folder)
    if ticks is not None:
        packed = with_ticks(packed, ticks[0], folder, slots, ticks[1])
    shards = InShards(form.rows, packed, tuple(slots), processor)
    if isinstance(node, Queue):
        return PhysicalStep(shards.frames(), node.schema, (unpack(form.rows, list(extra), folder),))
    return PhysicalStep(shards, node.schema)


def _in_stage(form: ShardedOperator, rows: PhysicalStep, processor: OperatorProcessor) -> InShards:
    assert isinstance(rows.base, InShards)
    names = form.packing([0])[0][0]
    steps = rows.steps if names is None else (*rows.steps, choosing(names))
    return rows.base.with_next(steps, lambda slot: form.packing([slot])[0][1], processor, form.rows)


def _ticks(node: StatefulNode, folder: str) -> tuple[type[TickSource], Mapping[str, str]] | None:
    """Return the source of an operator's ticks and its options; None if it needs none."""
    plan: Any = node.specification
    match plan:
        case IntakePlan() if plan.on_demand is not None:
            return SilentFeedTicks, silent_feed_options(folder, plan.policy, plan.on_demand)
        case ShardPlan() if isinstance(node, Queue):
            return QueueTicks, node.options
        case WindowPlan() | ReorderPlan() if plan.flush_rows is not None:
            return FlushSource, {}
        case JoinPlan() if plan.release is not None and plan.release.adaptive:
            return ReleaseTicks, plan.release.options()
        case _:
            return None


def _with_columns(rows: PhysicalStep, columns: Mapping[str, Column]) -> PhysicalStep:
    """Return rows with further columns."""
    if not columns:
        return rows
    from pyspark.sql import functions as F

    df = rows.df
    df = df.select(*[F.col(quoted(each)) for each in df.columns], *[each.alias(to) for to, each in columns.items()])
    return PhysicalStep(df, df.schema)


def _as_named(rows: PhysicalStep, schema: StructType) -> PhysicalStep:
    """Return the same rows with their columns in the order of a schema."""
    if rows.schema.names == schema.names:
        return rows
    from pyspark.sql import functions as F

    df = rows.df.select(*[F.col(quoted(name)) for name in schema.names])
    return PhysicalStep(df, df.schema)


def _extra_columns(node: Queue) -> dict[str, Column]:
    """Return the columns to add to each row before it is packed: its weight and its access interval."""
    from pyspark.sql import functions as F

    columns: dict[str, Column] = {}
    if node.weight is not None:
        value = F.expr(node.weight) if isinstance(node.weight, str) else node.weight
        columns[WEIGHT] = F.coalesce(value.cast("double"), F.lit(1.0))
    if node.access_interval is not None:
        columns[INTERVAL] = _interval_us(node.access_interval)
    return columns


def _interval_us(value: str | Column) -> Column:
    """Return an interval in microseconds: 0 if the expression is null or negative."""
    from pyspark.sql import functions as F

    if isinstance(value, str):
        if is_duration(value):
            return F.lit(parse_duration_us(value)).cast("bigint")
        value = F.expr(value)
    micros = F.round(value.cast("double") * 1e6).cast("bigint")
    return F.greatest(F.coalesce(micros, F.lit(0)), F.lit(0))
