"""The sharded operators of a plan: the shard of each, the packing of its inputs, and the columns that it emits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ..plan.newest_nodes import WindowVersions
from ..plan.nodes import Queue, Reorder, StatefulNode
from .grouped.groups import GroupShard
from .grouped.plan import GroupPlan, GroupWindowPlan
from .grouped.window_shard import WindowGroupShard, WindowVersionShard
from .ingest.plan import IntakePlan
from .ingest.shard import IntakeShard, intake_pack
from .joins.as_of_shard import AsOfShard, EarlyAsOfShard
from .joins.band import LEFT, SIDES
from .joins.latest_changes import LatestJoinShard, VersionShard
from .joins.latest_plan import LatestJoinPlan, VersionPlan
from .joins.plan import AsOfPlan, JoinPlan
from .joins.shard import JoinShard, join_pack, newest_pack, own_pack
from .queue.queue import ONE_PER_KEY, ShardPlan
from .queue.shard import QueueShard
from .reorder.shard import ReorderPlan, ReorderShard
from .runtime.feeds import named
from .runtime.pack import pack
from .runtime.shard import Shard
from .runtime.steps import ChainedSteps
from .windows.sessions import SessionWindows
from .windows.shards.plan import WindowPlan
from .windows.shards.results import result_schema, window_pack
from .windows.shards.row_numbers import NumberingPlan, NumberingShard, numbering_pack
from .windows.shards.row_shard import RowWindowShard
from .windows.shards.session_shard import SessionShard
from .windows.shards.shard import WindowShard

if TYPE_CHECKING:
    from ..core.pushdown.source_steps import ArrowStep

FinalWindow = Callable[[], "int | None"]
"""A function that returns the greatest window that is final in any shard; None for none."""

Packing = tuple["list[str] | None", "ArrowStep"]
"""The columns that shards need of an input (None for all), and the step that packs them into frames."""


class ShardedOperator(NamedTuple):
    """An operator in shards."""

    shard: type[Shard[Any, Any]]
    plan: Any
    shards: int
    rows: pa.Schema  # that it emits
    packing: Callable[[Sequence[int]], list[Packing]]  # by Spark's grouping number of each shard; one for each input


def sharded(node: StatefulNode, final: FinalWindow, *, whole_rows: bool = True) -> ShardedOperator:
    """Return an operator in shards. `final` is for windows, which get the needed columns without `whole_rows`."""
    plan: Any = node.specification
    needed: list[str] | None = None
    if isinstance(plan, ReorderPlan) and isinstance(node, Reorder):
        plan = dataclasses.replace(plan, newest=node.newest)
    elif isinstance(plan, WindowPlan) and not whole_rows:
        needed = plan.columns
        plan = dataclasses.replace(plan, schema=pa.schema([plan.schema.field(name) for name in needed]))
    kind = shard_class(plan, versions=isinstance(node, WindowVersions))
    return ShardedOperator(kind, plan, plan.shards, *_rows_and_packing(node, plan, needed, final))


def _rows_and_packing(
    node: StatefulNode, plan: Any, needed: list[str] | None, final: FinalWindow
) -> tuple[pa.Schema, Callable[[Sequence[int]], list[Packing]]]:
    # Workers receive these functions, and must not receive a node.
    match plan:
        case IntakePlan():
            return plan.leaving, lambda slots: [(None, intake_pack(slots, every_shard=plan.stamped))]
        case ShardPlan():
            # Only each key's newest row is packed, if no other is needed or counted.
            alike = isinstance(node, Queue) and node.weight is None and node.access_interval is None
            coalesce = plan.policy in ONE_PER_KEY and alike
            return node.arrow, lambda slots: [(None, pack(plan.key, slots, plan.time, coalesce))]
        case WindowPlan():
            return result_schema(plan), lambda slots: [(needed, window_pack(plan, slots, final))]
        case NumberingPlan():
            return plan.schema, lambda slots: [(plan.needed, numbering_pack(slots[0]))]
        case ReorderPlan():
            return node.arrow, lambda slots: [
                (None, ChainedSteps((*((named(name),) if name else ()), pack(plan.by, slots, None, False, plan.name))))
                for name in plan.inputs or (None,)
            ]
        case JoinPlan() | AsOfPlan():
            return plan.schema, lambda slots: [
                (side.schema.names, join_pack(side.on, slots, name, whole=plan.takes_whole(at)))
                for at, (side, name) in enumerate(zip(plan.sides, SIDES, strict=True))
            ]
        case VersionPlan(side=side):
            return side.versioned, lambda slots: [(side.schema.names, own_pack(side, side.key, slots, SIDES[LEFT]))]
        case LatestJoinPlan() | GroupPlan():
            sides = (plan.side,) if isinstance(plan, GroupPlan) else plan.sides
            return plan.schema, lambda slots: [
                newest_pack(side, slots, name) for side, name in zip(sides, SIDES, strict=False)
            ]
        case GroupWindowPlan():
            versions = isinstance(node, WindowVersions)
            by, schema = (plan.key, plan.window.schema) if versions else (plan.group, plan.taken)
            rows = plan.side.versioned if versions else result_schema(plan.window)
            return rows, lambda slots: [(schema.names, join_pack(by, slots, SIDES[LEFT], whole=True))]
        case _:
            raise TypeError(f"{type(node).__name__} is not an operator in shards")


def shard_class(plan: Any, *, versions: bool = False) -> type[Shard[Any, Any]]:
    """Return the class of an operator's shards; with `versions`, of those ahead of windows by group."""
    match plan:
        case WindowPlan() if isinstance(plan.windows, SessionWindows):
            return SessionShard
        case WindowPlan():
            return RowWindowShard if plan.by_rows else WindowShard
        case AsOfPlan():
            return EarlyAsOfShard if plan.early else AsOfShard
        case GroupWindowPlan():
            return WindowVersionShard if versions else WindowGroupShard
        case _:
            return _SHARDS[type(plan)]


_SHARDS: dict[type[Any], type[Shard[Any, Any]]] = {
    IntakePlan: IntakeShard,
    ShardPlan: QueueShard,
    NumberingPlan: NumberingShard,
    ReorderPlan: ReorderShard,
    JoinPlan: JoinShard,
    VersionPlan: VersionShard,
    LatestJoinPlan: LatestJoinShard,
    GroupPlan: GroupShard,
}
