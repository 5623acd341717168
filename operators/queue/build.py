"""The update queue of a plan, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...conf.session import make_known
from ...core.rows.buckets import integers_with_hash
from ..runtime.arrow_steps import map_in_arrow
from ..runtime.compiled import Compiled
from .control import ShardPlan
from .queue import ONE_PER_KEY

if TYPE_CHECKING:
    from ...plan.nodes import Queue

__all__ = ["build_queue"]


def build_queue(node: Queue, before: Compiled, folder: str) -> Compiled:
    """Return the rows that the queue lets go.

    Parameters
    ----------
    node
        What the queue does.
    before
        The rows that come to it.
    folder
        Where its shards report.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from ..runtime.pack import FRAME_DDL, PACKED_DDL, pack, rows_to_frame, unpack
    from ..runtime.shard_processor import SparkShards
    from .processor import QueueProcessor
    from .ticks import TickSource

    plan = node.specification
    assert isinstance(plan, ShardPlan)
    df = before.df
    extra = list(node.columns)
    for name, column in node.columns.items():
        df = df.withColumn(name, column)
    session = df.sparkSession
    make_known(session)
    session.dataSource.register(TickSource)
    coalesce = plan.policy in ONE_PER_KEY and not extra
    slots = integers_with_hash(range(plan.shards))
    packed = map_in_arrow(df, pack(plan.key, slots, plan.time, coalesce), PACKED_DDL)
    options = {**node.options, "feedback": folder, "slots": ",".join(str(slot) for slot in slots)}
    ticks = session.readStream.format("upstream_ticks").options(**options).load()
    shards = SparkShards(slots, QueueProcessor(plan, folder), (), rows_to_frame)
    served = packed.union(ticks).groupBy("slot").transformWithState(shards, FRAME_DDL, "append", "none")
    return Compiled(served, node.schema, (unpack(to_arrow_schema(node.schema, timezone="UTC"), extra, folder),))
