"""Aggregates by group on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.rows.buckets import integers_with_hash
from ..joins.band import LEFT, SIDES
from ..joins.pack import newest_pack
from ..runtime.compiled import Compiled
from ..runtime.sharded import InShards
from .plan import GroupPlan

if TYPE_CHECKING:
    from ...plan.newest_nodes import Grouped

__all__ = ["build_groups"]


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
    columns, step = newest_pack(plan.side, slots, SIDES[LEFT])
    packed = before.packed(step, columns)
    return Compiled(InShards(plan.schema, packed, tuple(slots), GroupProcessor(plan, folder)), node.schema)
