"""Compilation of a logical plan to Spark, bound to one checkpoint."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf.column_names import quoted
from ..conf.locations import Place, checkpoint_location
from ..conf.state_store import check_state_store
from ..core.feedback.checkpoint_layout import quarantine_folder
from ..core.feedback.plan_record import has_begun, read_plan_record, write_plan_record
from ..plan.fingerprint import check_same, fingerprint, from_json, fused_as, to_json
from ..plan.fusion import fusable
from ..plan.newest_nodes import Grouped, LatestJoin, Versions, WindowedGroups, WindowVersions
from ..plan.nodes import (
    Intake,
    Join,
    Map,
    Node,
    Operator,
    Queue,
    Reorder,
    Rows,
    Transform,
    Window,
)
from ..plan.numbering_node import Numbering
from ..plan.places import check_late_locations, operators, places
from ..plan.table_node import TableJoin, joins_tables
from ..plan.together import Together
from .grouped.build import build_groups, build_window_groups, build_window_versions
from .intake.build import build_intake
from .joins.build import build_join, build_latest_join, build_versions
from .plan_paths import check_aside, places_aside, places_read
from .queue.build import build_queue
from .reorder.build import build_reorder
from .row_steps import on_spark
from .runtime.compiled import Compiled
from .runtime.feeds import without_single_keys
from .tables.build import build_table_join
from .windows.shards.build import build_numbering, build_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ..core.pushdown.source_steps import ArrowStep

__all__ = ["BoundStream", "bind", "bind_together", "in_stages"]

# The compiled form of each node, by the folders and stages of the operators before it. Later steps find a column that a
# user took from a stream's DataFrame only if they build on the same DataFrame.
_BUILT: weakref.WeakKeyDictionary[Node, dict[tuple[tuple[str, bool], ...], Compiled]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class BoundStream:
    """A stream on Spark, with one checkpoint."""

    plan: Node
    rows: Compiled
    reports: tuple[str, ...]  # the folders to which its operators report

    @property
    def df(self) -> DataFrame:
        return self.rows.df

    @property
    def key(self) -> tuple[str, ...]:
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
        """The folders of its late and malformed rows."""
        return places_aside(self.plan)

    def without_single_keys(self) -> BoundStream:
        """Return the stream without punctuation of single keys, for a table whose key lacks some of their columns."""
        return dataclasses.replace(self, rows=self.rows.then(without_single_keys(self.key), self.plan.schema))

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None:
        return self.rows.in_arrow(step, schema)


def bind(plan: Node, checkpoint: str | os.PathLike[str] | None) -> BoundStream:
    """Build a plan on Spark, as :func:`bind_together`."""
    found, fused = _bound_to(plan, checkpoint)
    return BoundStream(plan, _build(plan, _Binding(found, fused, checkpoint)), tuple(found.values()))


def bind_together(plans: Sequence[Node], checkpoint: str | os.PathLike[str] | None) -> list[BoundStream]:
    """Build the plans of one query's streams on Spark.

    `checkpoint` is the query's; it may be None if no operator reports below it. Raise OptionError if it is missing or
    two operators would write to one place. Raise CheckpointError if it belongs to other operators, and
    EnvironmentMissingError if the state store cannot hold their state.
    """
    first = plans[0]
    found, fused = _bound_to(Together(first.key, first.time, first.schema, inputs=tuple(plans)), checkpoint)
    return [
        BoundStream(
            plan, _build(plan, _Binding(found, fused, checkpoint)), tuple(found[each] for each in operators(plan))
        )
        for plan in plans
    ]


def _bound_to(
    plan: Node, checkpoint: str | os.PathLike[str] | None
) -> tuple[Mapping[Operator, str], Collection[Operator]]:
    """Return each operator's folder, and the operators that share a stage; record them in the checkpoint."""
    found = places(plan, checkpoint)
    if found:
        check_state_store(plan.session, next(iter(found)).text)
    check_late_locations(plan)
    check_aside(plan, checkpoint)
    fused, record = in_stages(plan, found, checkpoint)
    if record is not None:
        assert checkpoint is not None
        write_plan_record(os.fspath(checkpoint), record)
    return found, fused


def in_stages(
    plan: Node, folders: Mapping[Operator, str], checkpoint: str | os.PathLike[str] | None
) -> tuple[Collection[Operator], Any]:
    """Return the operators that run in the stage before them, and the record to write to the checkpoint, if any.

    Spark numbers its stateful stages, so a query that has begun keeps its stages. Without a known checkpoint, every
    operator has a stage. Raise CheckpointError if the checkpoint belongs to other operators.
    """
    # Without operators, a single stream does not read the checkpoint: this process may have no access to it.
    if checkpoint is None or not (folders or isinstance(plan, Together)):
        return frozenset[Operator](), None
    place = os.fspath(checkpoint)
    if not folders:
        record = read_plan_record(place) if has_begun(place) else None
        if record is not None:
            check_same(from_json(record), ())
        return frozenset[Operator](), None
    fused, record = fusable(plan), None
    if has_begun(place):
        record = read_plan_record(place)
        # A release that recorded nothing gave each operator a stage.
        fused = frozenset() if record is None else fused_as(plan, from_json(record), fused)
    now = fingerprint(plan, folders, fused, checkpoint_location(place))
    if record is None:
        return fused, to_json(now)
    check_same(from_json(record), now)
    return fused, None


class _Binding(NamedTuple):
    """The operators' folders, those that share a stage, and the query's checkpoint."""

    folders: Mapping[Operator, str]
    fused: Collection[Operator]
    checkpoint: str | os.PathLike[str] | None


def _build(node: Node, binding: _Binding) -> Compiled:
    before = [_build(each, binding) for each in node.inputs]
    known = _BUILT.setdefault(node, {})
    name = tuple((binding.folders[each], each in binding.fused) for each in operators(node))
    if joins_tables(node):
        name += ((str(_checkpoint(binding)), False),)
    if name not in known:
        known[name] = _built(node, before, binding)
    return known[name]


def _built(node: Node, before: list[Compiled], binding: _Binding) -> Compiled:
    folders = binding.folders
    match node:
        case Rows():
            return Compiled(node.frame, node.schema)
        case Transform():
            return Compiled(on_spark(node.step, before[0].df, node.fixed), node.schema)
        case Map():
            return before[0].then(node.step, node.schema)
        case Intake():
            own = node.checkpoint if node.checkpoint is not None else binding.checkpoint
            assert own is not None
            quarantine = node.quarantine_location or quarantine_folder(own)
            return build_intake(node, folders[node], quarantine)
        case Queue():
            return build_queue(node, before[0], folders[node])
        case Window():
            return build_windows(node, before[0], folders[node], fused=node in binding.fused)
        case Numbering():
            return build_numbering(node, before[0], folders[node])
        case Reorder():
            return build_reorder(
                node, [_as_named(each, node.schema) for each in before], folders[node], fused=node in binding.fused
            )
        case Join():
            return build_join(node, before, folders[node])
        case Versions():
            return build_versions(node, before[0], folders[node])
        case LatestJoin():
            return build_latest_join(node, before, folders[node])
        case Grouped():
            return build_groups(node, before[0], folders[node])
        case TableJoin():
            return build_table_join(node, before[0], _checkpoint(binding))
        case WindowVersions():
            return build_window_versions(node, before[0], folders[node])
        case WindowedGroups():
            return build_window_groups(node, before[0], folders[node])
        case _:
            raise TypeError(f"{type(node).__name__} is no step that can be built on Spark")


def _checkpoint(binding: _Binding) -> str | None:
    return None if binding.checkpoint is None else os.fspath(binding.checkpoint)


def _as_named(rows: Compiled, schema: StructType) -> Compiled:
    """Return the same rows with their columns in the order of a schema."""
    if rows.schema.names == schema.names:
        return rows
    from pyspark.sql import functions as F

    df = rows.df.select(*[F.col(quoted(name)) for name in schema.names])
    return Compiled(df, df.schema)
