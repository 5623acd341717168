"""The compilation of unions, merges, ordered release, and distinct to Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from ...conf.options import text_argument
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.buckets import integers_with_hash
from ...core.rows.event_times import check_time_type
from ...core.rows.system_column import system_field, with_system_fields
from ..runtime.dead_letters import late_rows_of
from ..runtime.steps import InShards, PhysicalStep, chained
from .plan import ReorderPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ...plan.nodes import Reorder


def named(name: str) -> ArrowStep:
    """Return a step that renames an input's feeds to ``name/feed``, so that feeds of two inputs never share a name."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in batches:
            table = pa.Table.from_batches([batch])
            source = pc.fill_null(system_field(table, "source"), "").combine_chunks()
            yield from (
                with_system_fields(table, source=pc.binary_join_element_wise(name, source, "/"))
                .combine_chunks()
                .to_batches()
            )

    return run


def build_reorder(node: Reorder, before: Sequence[PhysicalStep], folder: str, *, fused: bool = False) -> PhysicalStep:
    """Return the rows of a union, a merge, an ordered release or a distinct, whose shards report to `folder`.

    If `fused`, the operator runs in the stage of the operator before it.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from ..runtime.pack import pack
    from ..runtime.ticks import with_flush_ticks
    from .processor import ReorderProcessor

    plan = node.specification
    assert isinstance(plan, ReorderPlan)
    plan = dataclasses.replace(plan, newest=node.newest)
    processor = ReorderProcessor(plan, folder, late_rows_of(node))
    arrow = to_arrow_schema(node.schema, timezone="UTC")
    if fused:
        (rows,) = before
        assert isinstance(rows.base, InShards)

        def pack_for(slot: int) -> ArrowStep:
            return pack(plan.by, [slot], None, coalesce=False, operator=plan.name)

        return PhysicalStep(rows.base.with_next(rows.steps, pack_for, processor, arrow), node.schema)
    slots = integers_with_hash(range(plan.shards))
    packed: DataFrame | None = None
    for at, rows in enumerate(before):
        step = pack(plan.by, slots, None, coalesce=False, operator=plan.name)
        frames = rows.packed(chained((named(plan.inputs[at]), step)) if plan.inputs else step)
        packed = frames if packed is None else packed.union(frames)
    assert packed is not None
    if plan.flush_rows is not None:
        packed = with_flush_ticks(packed, folder, slots, "reorder")
    return PhysicalStep(InShards(arrow, packed, tuple(slots), processor), node.schema)


def check_ordered(time: str | None, kind: pa.DataType | None, operator: str, time_format: str | None) -> None:
    """Refuse to order a stream by a time that it lacks, that has no order, or whose numbers do not fit the format."""
    text_argument("time_format", time_format)
    if time is None or kind is None:
        raise OptionError(
            f"{operator} on a stream without a time",
            expected="UpdateStream(df, key=…, event_time=…)",
            hint="name the time column",
        )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (number or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"{operator} by {time!r}, which is of type {kind}", expected="a timestamp, a date or a number"
        )
    if time_format is not None:
        check_time_type(time, kind, time_format, "time_format")


def check_inputs(names: Sequence[str], prefer: str | None) -> None:
    """Refuse names that do not distinguish two inputs."""
    given = cast("object", names)  # whatever it is
    texts = isinstance(given, (tuple, list)) and all(isinstance(name, str) for name in given)
    if not texts or len(names) != 2 or len(set(names)) != 2 or any(not name or "/" in name for name in names):
        raise OptionError(
            f"names={given!r}", expected="two different names without a slash: feeds are named by their input"
        )
    if prefer is not None and prefer not in names:
        raise OptionError(f"prefer={prefer!r}", expected="one of the inputs: " + ", ".join(names))
