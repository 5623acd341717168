"""The compilation of an ingested DataFrame to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...conf.column_names import quoted
from ...conf.locations import absolute_location
from ...conf.session import register_data_source
from ...core.rows.buckets import integers_with_hash
from ..runtime.dead_letters import DeadLetterRows, late_rows_of
from ..runtime.steps import InShards, PhysicalStep, map_in_arrow
from .plan import IntakePlan
from .tick_planner import SilentFeedTicks, silent_feed_options

if TYPE_CHECKING:
    from ...plan.nodes import Intake


def build_intake(node: Intake, folder: str, quarantine: str) -> PhysicalStep:
    """Return the input's rows with the system column, then punctuation; `folder` takes the reports on feeds."""
    from pyspark.sql import functions as F

    from ..runtime.pack import PACKED_DDL
    from .pack import intake_pack
    from .processor import IntakeProcessor

    plan = node.specification
    assert isinstance(plan, IntakePlan)
    slots = integers_with_hash(range(plan.shards))
    malformed = DeadLetterRows(absolute_location(quarantine), f"malformed-{node.name}")
    late = late_rows_of(node)
    df = node.frame
    rows = df.select(
        *[F.col(quoted(each)) for each in df.columns], *[each.alias(to) for to, each in node.columns.items()]
    )
    packed = map_in_arrow(rows, intake_pack(slots, every_shard=plan.stamped), PACKED_DDL)
    if plan.on_demand is not None:
        session = packed.sparkSession
        register_data_source(session)
        session.dataSource.register(SilentFeedTicks)
        options = silent_feed_options(folder, slots, plan.policy, plan.on_demand)
        packed = packed.union(session.readStream.format("upstream_silent_feeds").options(**options).load())
    processor = IntakeProcessor(plan, folder, malformed, late)
    return PhysicalStep(InShards(plan.leaving, packed, tuple(slots), processor), node.schema)
