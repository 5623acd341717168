"""The compilation of joins to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...conf.session import register_data_source
from ...core.rows.buckets import integers_with_hash
from ..runtime.dead_letters import late_rows_of
from ..runtime.steps import InShards, PhysicalStep
from .band import LEFT, SIDES
from .latest_plan import LatestJoinPlan, VersionPlan
from .pack import join_pack, newest_pack, own_pack
from .plan import AsOfPlan, JoinPlan
from .release.choice import ReleasePlan
from .release.tick_planner import ReleaseTicks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ...plan.newest_nodes import LatestJoin, Versions
    from ...plan.nodes import TimeJoin


def build_join(node: TimeJoin, before: Sequence[PhysicalStep], folder: str) -> PhysicalStep:
    """Return the results of a join of the left's and the right's rows, whose shards report to `folder`."""
    from .processor import JoinProcessor

    plan = node.specification
    assert isinstance(plan, JoinPlan | AsOfPlan)
    late = late_rows_of(node)
    slots = integers_with_hash(range(plan.shards))
    left, right = (
        rows.packed(join_pack(side.on, slots, name, whole=plan.takes_whole(at)), side.schema.names)
        for at, (rows, side, name) in enumerate(zip(before, plan.sides, SIDES, strict=True))
    )
    packed = left.union(right)
    if isinstance(plan, JoinPlan) and plan.release is not None and plan.release.adaptive:
        packed = packed.union(_choices(packed, plan.release, folder, slots))
    return PhysicalStep(InShards(plan.schema, packed, tuple(slots), JoinProcessor(plan, folder, late)), node.schema)


def _choices(packed: DataFrame, release: ReleasePlan, folder: str, slots: Sequence[int]) -> DataFrame:
    """Return a stream with a message for each shard whenever the way to order results by time changes."""
    session = packed.sparkSession
    register_data_source(session)
    session.dataSource.register(ReleaseTicks)
    options = {**release.options(), "feedback": folder, "slots": ",".join(map(str, slots))}
    return session.readStream.format("upstream_release").options(**options).load()


def build_versions(node: Versions, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return the newest rows of one side's keys, for :func:`build_latest_join`."""
    from .processor import VersionProcessor

    plan = node.specification
    assert isinstance(plan, VersionPlan)
    side, slots = plan.side, integers_with_hash(range(plan.shards))
    packing = own_pack(side, side.key, slots, SIDES[LEFT])
    packed = before.packed(packing, side.schema.names)
    return PhysicalStep(InShards(side.versioned, packed, tuple(slots), VersionProcessor(plan, folder)), node.schema)


def build_latest_join(node: LatestJoin, before: Sequence[PhysicalStep], folder: str) -> PhysicalStep:
    """Return the results of a join of newest rows, whose shards report to `folder`.

    The rows of a side whose keys may move come from :func:`build_versions`.
    """
    from .processor import LatestJoinProcessor

    plan = node.specification
    assert isinstance(plan, LatestJoinPlan)
    slots = integers_with_hash(range(plan.shards))
    packed: list[DataFrame] = []
    for rows, side, name in zip(before, plan.sides, SIDES, strict=True):
        columns, step = newest_pack(side, slots, name)
        packed.append(rows.packed(step, columns))
    left, right = packed
    processor = LatestJoinProcessor(plan, folder)
    return PhysicalStep(InShards(plan.schema, left.union(right), tuple(slots), processor), node.schema)
