"""The rows that window operators emit, and the head of their state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import Int64s
from ....core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array
from ....plan.specification import in_words_of_today
from ...runtime import state_head as heads
from ...runtime.feeds import punctuation_rows
from ...runtime.store import Store
from ..columns import ends_column
from ..evaluate import Results
from .changed_aggregates import check_aggregates, nulled
from .plan import OPENS, ROWS, WindowPlan

__all__ = [
    "RESULT_COLUMNS",
    "check_identity",
    "head_of",
    "punctuation_before",
    "read_head",
    "result_schema",
    "results_table",
    "window_columns",
]

_VERSION = 1
RESULT_COLUMNS = ("window_id", "window_start", "window_end", "window_time", "final")
"""The columns of a result besides its key and its aggregates."""


def result_schema(plan: WindowPlan) -> pa.Schema:
    """Return the columns of results: key, window, aggregates, system column."""
    ends = plan.ends_type
    own = [
        ("window_id", pa.int64()),
        *((f"window_{name}", ends) for name in ("start", "end", "time")),
        ("final", pa.bool_()),
    ]
    return pa.schema(
        [
            *(plan.schema.field(name).with_nullable(True) for name in plan.key),
            *(pa.field(name, kind) for name, kind in own),
            *(field for field in plan.algebra.result_schema if field.name not in (ROWS, OPENS)),
            pa.field(SYSTEM, SYSTEM_TYPE),
        ]
    )


def results_table(
    plan: WindowPlan,
    parts: Sequence[tuple[Results, bool | None]],
    shard: int,
    now_us: int,
    seq: int,
    since: Mapping[str, int],
) -> tuple[pa.Table, int]:
    """Return results as rows, and the sequence number of the next row.

    `parts` are results, each with True if the windows are complete, False if not, or None for tombstones of retracted
    results. `seq` continues from batch to batch, since the sink keeps the greater of two results for one window.
    `now_us` is the arrival of the rows or punctuation that completed the windows. `since` is the first pane from which
    a state column is complete, for columns that are not so in all panes.
    """
    tables: list[pa.Table] = [result_schema(plan).empty_table()]
    for results, final in parts:
        tables.append(_table(plan, results, final, shard, (now_us, seq), since))
        seq += len(results)
    return pa.concat_tables(tables), seq


def _table(
    plan: WindowPlan,
    results: Results,
    final: bool | None,
    shard: int,
    arrived: tuple[int, int],
    since: Mapping[str, int],
) -> pa.Table:
    now_us, begin = arrived
    schema, n = result_schema(plan), len(results)
    values = plan.algebra.lower(results.state)
    columns: dict[str, Any] = dict(zip(plan.key, results.keys.columns, strict=True))
    columns |= {
        **window_columns(plan, results.wids, results.ends),
        "final": pa.repeat(pa.scalar(final, pa.bool_()), n),
    }
    gone = final is None
    for name in plan.aggregates:
        mine = values.column(name)
        columns[name] = pa.nulls(n, mine.type) if gone else nulled(plan, name, mine, results.wids, since)
    arrival = np.full(n, now_us, dtype=np.int64)
    seq: Int64s = np.arange(begin, begin + n, dtype=np.int64)
    columns[SYSTEM] = system_array(
        source=f"window/{shard}", seq=seq, arrival_us=arrival, deleted=np.full(n, True) if gone else None
    )
    return pa.table(columns, schema=schema)


def window_columns(plan: WindowPlan, wids: Int64s, until: Int64s | None = None) -> dict[str, pa.Array]:
    """Return the columns of results that name their windows; `until` has the ends of sessions."""
    ends = plan.ends_type
    if until is None:
        start, end = plan.windows.start_and_end(wids)
        last = plan.windows.last_instant(wids)
    else:
        start, end, last = wids, until, until - 1
    return {
        "window_id": pa.array(wids),
        "window_start": ends_column(start, ends),
        "window_end": ends_column(end, ends),
        "window_time": ends_column(last, ends),
    }


def punctuation_before(plan: WindowPlan, window: int | None, shard: int, now_us: int) -> pa.Table:
    """Return punctuation on the windows' own times: all results before those of `window` have been emitted.

    `window` is None if no results follow. The punctuation is for `window_time` and for `window_end`, so that a table
    may be in the order of either.
    """
    at = None if window is None else int(plan.windows.last_instant(window))
    end = None if window is None else int(plan.windows.start_and_end(window)[1])
    columns = {
        name: pa.array([time], pa.int64()).cast(TIMESTAMP) for name, time in (("window_time", at), ("window_end", end))
    }
    return punctuation_rows(result_schema(plan), [f"window/{shard}"], now_us, **columns)


def head_of(plan: WindowPlan, **members: Any) -> bytes:
    """Return a shard's head: the settings to which its state is bound, and some members."""
    bound = {"aggregates": plan.aggregates_text, "state": plan.state_columns}
    return json.dumps({"layout": _VERSION, "plan": plan.identity(), **bound, **members}).encode()


def read_head(store: Store, plan: WindowPlan) -> dict[str, Any]:
    """Return a shard's head from the batch before; empty for a new shard. Another plan or version is refused."""
    head = heads.read_head(store)
    if head:
        check_identity(head["plan"], plan, heads.other_layout(head["layout"], _VERSION))
        check_aggregates(head.get("aggregates"), head.get("state"), plan)
    return head


def check_identity(was: Mapping[str, str], plan: WindowPlan, more: Sequence[str] = ()) -> None:
    """Refuse a plan other than the one with which a checkpoint was begun."""
    before = dict(was)
    if plan.flush == "slow" and "flush" not in before:
        more = [*more, "flush 'eager' or 'lazy', now 'slow'"]
    check_aggregates(before.pop("aggregates", None), None, plan)  # where releases wrote them that took no others
    heads.check_identity(
        in_words_of_today(before),
        in_words_of_today(plan.identity()),
        "the windows of this checkpoint were begun",
        "window, key and number of shards",
        more,
    )
