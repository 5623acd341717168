"""The windows of a plan, on Spark."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from ....core.feedback.reports import WindowReport, read_reports
from ....core.rows.buckets import integers_with_hash
from ...runtime.dead_letters import late_rows_of
from ...runtime.steps import InShards, PhysicalStep, choosing
from .plan import WindowPlan
from .stream_numbers import NumberingPlan, numbering_pack

if TYPE_CHECKING:
    from ....plan.nodes import NumberRows, Window


def build_windows(node: Window, before: PhysicalStep, folder: str, *, fused: bool = False) -> PhysicalStep:
    """Return the results of windows, whose shards report to `folder`; `fused` runs them in the stage before."""
    from ...runtime.ticks import with_flush_ticks
    from .pack import fused_pack, window_pack
    from .processor import WindowProcessor
    from .results import check_aggregates, check_identity, result_schema

    plan = node.specification
    assert isinstance(plan, WindowPlan)
    for report in read_reports(folder, WindowReport):
        check_identity(report.plan, plan)
        check_aggregates(report.aggregates, report.state, plan)
    results = result_schema(plan)
    late = late_rows_of(node)
    slots = integers_with_hash(range(plan.shards))
    needed: list[str] | None = None
    if late is None:  # a late row is put aside whole; else no other column has to be turned into Arrow
        needed = plan.columns
        plan = dataclasses.replace(plan, schema=pa.schema([plan.schema.field(name) for name in needed]))
    processor = WindowProcessor(plan, folder, late)
    if fused:
        assert isinstance(before.base, InShards)
        steps = before.steps if needed is None else (*before.steps, choosing(needed))
        whole = before.base.with_next(steps, functools.partial(fused_pack, plan), processor, results)
        return PhysicalStep(whole, node.schema)
    packed = before.packed(window_pack(plan, slots, folder), needed)
    if plan.flush_rows is not None:
        packed = with_flush_ticks(packed, folder, slots, "windows")
    return PhysicalStep(InShards(results, packed, tuple(slots), processor), node.schema)


def build_numbering(node: NumberRows, before: PhysicalStep, folder: str) -> PhysicalStep:
    """Return numbered rows, for :func:`build_windows`; the shard reports to `folder`."""
    from .processor import NumberingProcessor

    plan = node.specification
    assert isinstance(plan, NumberingPlan)
    (slot,) = integers_with_hash(range(1))
    packed = before.packed(numbering_pack(slot), plan.needed)
    return PhysicalStep(InShards(plan.schema, packed, (slot,), NumberingProcessor(plan, folder)), node.schema)
