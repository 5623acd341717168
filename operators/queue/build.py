"""The update queue of a plan, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...conf.session import register_data_source
from ...conf.units import parse_duration_us
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.buckets import integers_with_hash
from ..runtime.pack import INTERVAL, WEIGHT
from ..runtime.steps import PhysicalStep, map_in_arrow
from .control import ShardPlan
from .queue import ONE_PER_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column

    from ...plan.nodes import Queue


def build_queue(node: Queue, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return the rows that the queue releases; its shards report to `folder`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ..runtime.pack import FRAME_DDL, PACKED_DDL, rows_to_frame, unpack
    from ..runtime.shard_processor import SparkShards
    from .processor import QueueProcessor
    from .tick_planner import QueueTicks

    plan = node.specification
    assert isinstance(plan, ShardPlan)
    df = before.df
    columns = _extra_columns(node)
    extra = list(columns)
    for name, column in columns.items():
        df = df.withColumn(name, column)
    session = df.sparkSession
    register_data_source(session)
    session.dataSource.register(QueueTicks)
    slots = integers_with_hash(range(plan.shards))
    packed = map_in_arrow(df, queue_pack(node, plan, slots), PACKED_DDL)
    options = {**node.options, "feedback": folder, "slots": ",".join(str(slot) for slot in slots)}
    ticks = session.readStream.format("upstream_ticks").options(**options).load()
    shards = SparkShards(slots, QueueProcessor(plan, folder), (), rows_to_frame)
    served = packed.union(ticks).groupBy("slot").transformWithState(shards, FRAME_DDL, "append", "none")
    return PhysicalStep(served, node.schema, (unpack(to_arrow_schema(node.schema, timezone="UTC"), extra, folder),))


def queue_pack(node: Queue, plan: ShardPlan, slots: Sequence[int]) -> ArrowStep:
    """Return a step that packs a task's rows into frames: only each key's newest, if no other is needed or counted."""
    from ..runtime.pack import pack

    alike = node.weight is None and node.access_interval is None
    return pack(plan.key, slots, plan.time, plan.policy in ONE_PER_KEY and alike)


def is_duration(text: str) -> bool:
    """Return whether a text is a duration and not an expression."""
    try:
        parse_duration_us(text)
    except ValueError:
        return False
    return True


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
