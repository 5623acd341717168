"""Aggregates that change while windows are open: kept state stays in use, and results without state are null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import CheckpointError
from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...runtime.entries import PANE
from ..sessions import SessionWindows
from .plan import WindowPlan

__all__ = ["check_aggregates", "nulled", "since_of", "with_state"]


def check_aggregates(was: str | None, kept: Mapping[str, str] | None, plan: WindowPlan) -> None:
    """Refuse aggregates other than those of the batch before, if the kept state does not suffice for them.

    `was` is the text of the aggregates with which the state was written, and `kept` the types of its columns. `kept` is
    None in a state of an earlier release, which works with the same aggregates alone.
    """
    if was is None or was == plan.aggregates_text:
        return
    now = plan.state_columns
    same = kept is not None and all(kept.get(name, kind) == kind for name, kind in now.items())
    if kept is not None and same and (kept == now or _may_grow(plan)):
        return
    raise CheckpointError(
        f"the windows of this checkpoint were begun with other aggregates: {was}; now {plan.aggregates_text}",
        expected="the same ones, or, for sliding, tumbling and calendar windows by time with the method paned or wid "
        "and without output='eager', "
        "any whose inputs have the types that they had",
        hint="put them back, or start with a new checkpoint location: the table keeps what is newer",
    )


def _may_grow(plan: WindowPlan) -> bool:
    """Return whether only partial aggregates are kept, for every row of an open window."""
    if isinstance(plan.windows, SessionWindows):
        return False
    return not (plan.by_rows or plan.keeps_rows or plan.emit == "eager" or plan.paned.endless or plan.paned.by_row)


def since_of(head: Mapping[str, Any], plan: WindowPlan, last_pane: int | None) -> dict[str, int]:
    """Return the first pane from which a state column is complete, for columns that are not so in all panes."""
    since: dict[str, int] = dict(head.get("since", {}))
    kept = head.get("state")
    if kept is None:
        return since
    closed = head.get("closed", LOWEST)
    seen = [] if last_pane is None else [last_pane]
    if LOWEST < closed < HIGHEST >> 1:  # at the end of all feeds no window is left that could begin
        seen.append(int(plan.paned.first_and_last(closed)[1]))
    now = plan.state_columns
    if seen:
        since |= {name: max(seen) + 1 for name in now if name not in kept}
    return {name: pane for name, pane in since.items() if name in now}


def with_state(table: pa.Table, plan: WindowPlan) -> pa.Table:
    """Return entries, as a table, with the state columns needed now; new columns have the state of no rows."""
    schema = plan.algebra.state_schema
    own = (*plan.key, PANE)
    if [name for name in table.column_names if name not in own] == schema.names:
        return table
    empty = plan.algebra.empty(table.num_rows)
    found = table.select(list(own))
    for field in schema:
        kept = field.name in table.column_names
        found = found.append_column(field, (table if kept else empty).column(field.name))
    return found


def nulled(
    plan: WindowPlan, name: str, values: pa.Array | pa.ChunkedArray, wids: Int64s, since: Mapping[str, int]
) -> Any:
    """Return a result's column, null for windows that had begun when it was added."""
    import pyarrow.compute as pc

    begun = max((since[column] for column in plan.algebra.columns_of(name) if column in since), default=None)
    if begun is None or len(wids) == 0:
        return values
    whole: Any = np.asarray(plan.paned.first_and_last(wids)[0]) >= begun
    return values if whole.all() else pc.if_else(pa.array(whole), values, pa.scalar(None, values.type))
