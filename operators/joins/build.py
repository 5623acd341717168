"""A join on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.rows.buckets import integers_with_hash
from ..reorder.build import named
from ..runtime.arrow_steps import chained
from ..runtime.compiled import Compiled
from ..runtime.sharded import InShards
from .pack import join_pack
from .plan import JoinPlan

if TYPE_CHECKING:
    from ...plan.nodes import Join

__all__ = ["INPUTS", "build_join"]

INPUTS = ("left", "right")
"""What the input partitions of each side are named by: ``left/partition``."""


def build_join(node: Join, before: Sequence[Compiled], folder: str) -> Compiled:
    """Return the results of a join.

    Parameters
    ----------
    node
        The join.
    before
        The rows of the left and of the right.
    folder
        Where its shards report.
    """
    from .processor import JoinProcessor

    plan = node.specification
    assert isinstance(plan, JoinPlan)
    slots = integers_with_hash(range(plan.shards))
    left, right = (
        rows.packed(chained((named(name), join_pack(side.on, slots, name))), side.schema.names)
        for rows, side, name in zip(before, plan.sides, INPUTS, strict=True)
    )
    return Compiled(InShards(plan.schema, left.union(right), tuple(slots), JoinProcessor(plan, folder)), node.schema)
