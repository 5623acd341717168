"""Aggregates by group on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.buckets import integers_with_hash
from ..joins.pack import latest_pack
from ..runtime.compiled import Compiled
from ..runtime.sharded import InShards
from .plan import GroupPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...plan.nodes import Grouped

__all__ = ["build_groups", "group_pack"]


def group_pack(plan: GroupPlan, slots: Sequence[int]) -> tuple[list[str], ArrowStep]:
    """Return the columns that a shard of groups takes, and the step that packs them."""
    side = plan.side
    columns = side.schema.names if side.stays else side.versioned.names
    return columns, latest_pack(side.on, slots, "left", side.key if side.stays else (), side.event_time)


def build_groups(node: Grouped, before: Compiled, folder: str) -> Compiled:
    """Return the results of aggregates by group.

    Parameters
    ----------
    node
        The aggregates.
    before
        The rows; those of :func:`~upstream.operators.joins.build.build_versions` where a key may change its group.
    folder
        Where its shards report.
    """
    from .processor import GroupProcessor

    plan = node.specification
    assert isinstance(plan, GroupPlan)
    slots = integers_with_hash(range(plan.shards))
    columns, step = group_pack(plan, slots)
    packed = before.packed(step, columns)
    return Compiled(InShards(plan.schema, packed, tuple(slots), GroupProcessor(plan, folder)), node.schema)
