"""The windows of a plan, on Spark."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from ....core.feedback.report_files import read_reports
from ....core.feedback.window_reports import WindowReport
from ....core.rows.buckets import integers_with_hash
from ...runtime.arrow_steps import choosing
from ...runtime.compiled import Compiled
from ...runtime.rows_aside import late_rows_of
from ...runtime.sharded import InShards
from .numbering import NumberingPlan, numbering_pack
from .plan import WindowPlan

if TYPE_CHECKING:
    from ....plan.nodes import Window
    from ....plan.numbering_node import Numbering

__all__ = ["build_numbering", "build_windows"]


def build_windows(node: Window, before: Compiled, folder: str, *, fused: bool = False) -> Compiled:
    """Return the results of windows, whose shards report to `folder`; `fused` runs them in the stage before."""
    from ...runtime.flush import with_flush_ticks
    from .changed_aggregates import check_aggregates
    from .pack import fused_pack, window_pack
    from .processor import WindowProcessor
    from .results import check_identity, result_schema

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
        return Compiled(whole, node.schema)
    packed = before.packed(window_pack(plan, slots, folder), needed)
    if plan.flush_rows is not None:
        packed = with_flush_ticks(packed, folder, slots, "windows")
    return Compiled(InShards(results, packed, tuple(slots), processor), node.schema)


def build_numbering(node: Numbering, before: Compiled, folder: str) -> Compiled:
    """Return numbered rows, for :func:`build_windows`; the shard reports to `folder`."""
    from .numbering_processor import NumberingProcessor

    plan = node.specification
    assert isinstance(plan, NumberingPlan)
    (slot,) = integers_with_hash(range(1))
    packed = before.packed(numbering_pack(slot), plan.needed)
    return Compiled(InShards(plan.schema, packed, (slot,), NumberingProcessor(plan, folder)), node.schema)
