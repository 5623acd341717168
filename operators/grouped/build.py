"""Compilation of aggregates by group to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.rows.buckets import integers_with_hash
from ..joins.band import LEFT, SIDES
from ..joins.pack import join_pack, newest_pack
from ..runtime.dead_letters import late_rows_of
from ..runtime.steps import InShards, PhysicalStep
from .plan import GroupPlan, GroupWindowPlan

if TYPE_CHECKING:
    from ...plan.newest_nodes import GroupBy, WindowedGroups, WindowVersions


def build_groups(node: GroupBy, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return the results of aggregates by group.

    If a key may change its group, `before` holds the results of :func:`~upstream.operators.joins.build.build_versions`.
    `folder` is where the shards report.
    """
    from .processor import GroupProcessor

    plan = node.specification
    assert isinstance(plan, GroupPlan)
    slots = integers_with_hash(range(plan.shards))
    columns, step = newest_pack(plan.side, slots, SIDES[LEFT])
    packed = before.packed(step, columns)
    return PhysicalStep(InShards(plan.schema, packed, tuple(slots), GroupProcessor(plan, folder)), node.schema)


def build_window_versions(node: WindowVersions, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return the newest row of each key in each window, for :func:`build_window_groups`."""
    from .processor import WindowVersionProcessor

    plan = node.specification
    assert isinstance(plan, GroupWindowPlan)
    slots = integers_with_hash(range(plan.shards))
    packed = before.packed(join_pack(plan.key, slots, SIDES[LEFT], whole=True), plan.window.schema.names)
    processor = WindowVersionProcessor(plan, folder, late_rows_of(node))
    return PhysicalStep(InShards(plan.side.versioned, packed, tuple(slots), processor), node.schema)


def build_window_groups(node: WindowedGroups, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return the results of windows by group.

    If a key may change its group, `before` holds the results of :func:`build_window_versions`, or of
    :func:`~upstream.operators.joins.build.build_versions` for windows of a table. `folder` is where the shards report.
    """
    from ..windows.shards.results import result_schema
    from .processor import WindowGroupProcessor

    plan = node.specification
    assert isinstance(plan, GroupWindowPlan)
    slots = integers_with_hash(range(plan.shards))
    packed = before.packed(join_pack(plan.group, slots, SIDES[LEFT], whole=True), plan.taken.names)
    processor = WindowGroupProcessor(plan, folder, late_rows_of(node))
    return PhysicalStep(InShards(result_schema(plan.window), packed, tuple(slots), processor), node.schema)
