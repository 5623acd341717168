"""The rows and punctuation that window operators take, packed by the tasks, and emit; the head of their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....conf.errors import CheckpointError
from ....core.feedback.reports import WindowReport, read_reports
from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.frames import by_bucket, from_frame, some_at_once, split_punctuation, to_frame
from ....core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array, system_field
from ....core.watermark.bounds import bounds_in
from ...runtime.feeds import ALL_FEEDS, ENDED, FeedBounds, KeyBounds, KeyShare, hear_all, key_mask, punctuation_rows
from ...runtime.pack import check_keys, micros, packed
from ...runtime.shard import Shard
from ...state.entries import PANE
from ...state.store import Store, check_identity
from ..evaluate import WindowStates
from ..sessions import SessionWindows
from .plan import OPENS, ROWS, WindowPlan

_ARRIVAL, _OUTSIDE, _TOMBSTONES = b"upstream.arrival", b"upstream.outside", b"upstream.tombstones"

Batches = Iterator[pa.RecordBatch]


def window_pack(
    plan: WindowPlan, slots: Sequence[int], final: Callable[[], int | None]
) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames.

    `final` returns the greatest window that is final in any shard. A row in one of those is sent as it is, since its
    shard may have to treat it as late. All others are sent as partial aggregates. Either is right: the shard decides
    by its own state.
    """

    def run(batches: Batches) -> Batches:
        known = final()
        for table in some_at_once(batches):
            yield frames_of(table, plan, slots, known)

    return run


def final_somewhere(reports: Sequence[WindowReport]) -> int | None:
    """Return the greatest window that is final in any shard, or for any key; None without reports."""
    return max((max(report.final, report.ahead) for report in reports), default=None)


def final_in(folder: str | None) -> int | None:
    """Return :func:`final_somewhere` of the reports in a folder; without one, any window may be final."""
    return HIGHEST if folder is None else final_somewhere(read_reports(folder, WindowReport))


def is_partial(table: pa.Table) -> bool:
    """Return whether a frame holds partial aggregates; else it holds rows."""
    return _ARRIVAL in (table.schema.metadata or {})


def latest_arrival(table: pa.Table) -> int:
    """Return the arrival of a frame's last row; 0 if it has none."""
    if is_partial(table):
        return int(table.schema.metadata[_ARRIVAL])
    return int(micros(table, "arrival").max(initial=0))


def frames_of(table: pa.Table, plan: WindowPlan, slots: Sequence[int], final: int | None) -> pa.RecordBatch:
    """Return the frames of one task's rows and punctuation; rows in windows up to `final` are sent as they are."""
    shards = len(slots)
    rows, punctuation = split_punctuation(table)
    rows, gone = plan.checked(rows)  # a tombstone has its key, and need not have another column
    check_keys(rows, plan.key, "window", "update key" if plan.update_key is None else "window's group")
    found: list[tuple[int, bytes]] = []
    whole = np.ones(rows.num_rows, dtype=np.bool_)
    times = np.empty(0, dtype=np.int64)
    if not plan.takes_rows:
        times = plan.times(rows)
        whole = np.zeros(rows.num_rows, dtype=np.bool_)
        # If the oldest row is in no final window, which is usual, neither is any other row.
        if final is not None and len(times) and int(plan.windows.wids(int(times.min()))[0]) <= final:
            whole = plan.windows.wids(times)[0] <= final
    early = rows.filter(pa.array(whole)) if whole.any() else rows.slice(0, 0)
    if not whole.all():
        rest = rows.filter(pa.array(~whole)) if len(early) else rows
        entries, outside = plan.entries(rest, times[~whole])
        metadata = {_ARRIVAL: str(int(micros(rest, "arrival").max(initial=0))), _OUTSIDE: str(outside)}
        for number, part in by_bucket(entries.table(), plan.key, shards):
            found.append((number, to_frame(part.replace_schema_metadata(metadata))))
            metadata = {_ARRIVAL: metadata[_ARRIVAL]}  # counted by one shard only
    # Each shard gets the punctuation of every input partition, with or without rows.
    late, none = dict(by_bucket(early, plan.key, shards)) if len(early) else {}, early.slice(0, 0)
    told_to = range(shards) if punctuation.num_rows else late
    found += [(number, to_frame(pa.concat_tables([late.get(number, none), punctuation]))) for number in told_to]
    if gone:  # counted by one shard only
        found.append((0, to_frame(none.replace_schema_metadata({_TOMBSTONES: str(gone)}))))
    return packed(found, slots)


def tombstones_in(table: pa.Table) -> int:
    """Return the number of tombstones that were left out of a frame's task."""
    return int((table.schema.metadata or {}).get(_TOMBSTONES, 0))


def outside_in(table: pa.Table) -> int:
    """Return the number of rows of a frame's task that were in no window."""
    return int((table.schema.metadata or {}).get(_OUTSIDE, 0))


def ends_column(ends: Int64s, dtype: pa.DataType) -> pa.Array:
    """Return window ends as timestamps for windows over timestamps or dates, else as int64; null for no end."""
    values = pa.array(ends, pa.int64(), mask=(ends == LOWEST) | (ends == HIGHEST))
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        return values.cast(TIMESTAMP)
    return values


def check_aggregates(was: str, kept: Mapping[str, str], plan: WindowPlan) -> None:
    """Refuse aggregates other than those of the batch before, if the kept state does not suffice for them.

    `was` is the text of the aggregates with which the state was written, and `kept` the types of its columns.
    """
    now = plan.state_columns
    same = all(kept.get(name, kind) == kind for name, kind in now.items())
    if was == plan.aggregates_text or (same and (kept == now or _may_grow(plan))):
        return
    raise CheckpointError(
        f"the windows of this checkpoint were begun with other aggregates: {was}; now {plan.aggregates_text}",
        expected="the same aggregates. Windows by time with the method paned or wid, and without output='eager', "
        "accept any whose inputs keep their types",
        hint="restore them, or start with a new checkpoint location: the table keeps the newer rows",
    )


def _may_grow(plan: WindowPlan) -> bool:
    """Return whether only partial aggregates are kept, for every row of an open window."""
    if isinstance(plan.windows, SessionWindows):
        return False
    return not (plan.by_rows or plan.keeps_rows or plan.emit == "eager" or plan.paned.endless or plan.paned.by_row)


def since_of(head: Mapping[str, Any], plan: WindowPlan, last_pane: int | None) -> dict[str, int]:
    """Return the first pane from which a state column is complete, for columns that are not so in all panes."""
    since: dict[str, int] = dict(head.get("since", {}))
    kept = head.get("state", plan.state_columns)
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
    begun = max((since[column] for column in plan.algebra.columns_of(name) if column in since), default=None)
    if begun is None or len(wids) == 0:
        return values
    whole: Any = np.asarray(plan.paned.first_and_last(wids)[0]) >= begun
    return values if whole.all() else pc.if_else(pa.array(whole), values, pa.scalar(None, values.type))


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
    parts: Sequence[tuple[WindowStates, bool | None]],
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
    results: WindowStates,
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


def check_settings(was: Mapping[str, str], plan: WindowPlan) -> None:
    """Refuse a plan other than the one with which a checkpoint was begun."""
    before = dict(was)
    if plan.flush == "slow":
        before.setdefault("flush", "eager or lazy")
    check_identity(
        before,
        plan.identity(),
        "the windows of this checkpoint were begun",
        "window, key and number of shards",
    )


class WindowStateShard(Shard[WindowPlan, WindowReport]):
    """The base of shards of windows. State that does not suffice for the aggregates is refused, too."""

    began = "the windows of this checkpoint were begun"
    same = "window, key and number of shards"
    report = WindowReport
    counted = ("tombstones",)

    def _check(self, head: Mapping[str, Any]) -> None:
        if head:
            super()._check({**head, "plan": self._plan.identity()})
            check_settings(head["plan"], self._plan)
            check_aggregates(head["aggregates"], head["state"], self._plan)

    def saved(self) -> dict[str, Any]:
        return self._settings

    def _opened(self, frames: Sequence[bytes]) -> list[pa.Table]:
        """Return the tables of frames, and account for their arrival and for the tombstones that they leave out."""
        tables = [from_frame(frame) for frame in frames]
        self._now_us = max([*map(latest_arrival, tables), self._now_us])
        self._counts["tombstones"] += sum(map(tombstones_in, tables))
        return tables

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings for :func:`check_aggregates`, in the head and in the report."""
        return {"aggregates": self._plan.aggregates_text, "state": self._plan.state_columns}


def key_bounds(plan: WindowPlan, store: Store, head: Mapping[str, Any], number: int) -> KeyBounds:
    """Return the bounds of single keys that a shard keeps."""
    shard = KeyShare(number, plan.shards, plan.key)
    return KeyBounds(store, "ahead", plan.key, int(head.get("ahead", 0)), shard)


def hear(plan: WindowPlan, punctuation: pa.Table, feeds: FeedBounds, ahead: KeyBounds | None) -> None:
    """Raise the bounds of input partitions, and of single keys in `ahead`; None if the windows wait for all keys."""
    assert plan.time is not None
    name = plan.time
    bounds = bounds_in(punctuation.column(name), lambda times: plan.times(pa.table([times], [name])))
    hear_all(punctuation, bounds, plan.rows_key, feeds, ahead)
    own = system_field(punctuation, "source").filter(pa.array(key_mask(punctuation, plan.rows_key)))
    known = [feed for feed in pc.unique(own).to_pylist() if feed != ALL_FEEDS]
    feeds.hear(known, [LOWEST] * len(known))  # feeds, though they have promised nothing for all keys


def key_punctuation(
    plan: WindowPlan, bounds: KeyBounds, times: tuple[Int64s, Int64s], number: int, promised: int, now_us: int
) -> pa.Table:
    """Return punctuation for single keys: all results of each before its next window's have been emitted.

    `times` are the ``window_time`` and the ``window_end`` of the next result of each key; ENDED if there is none. All
    results of all keys before the ``window_time`` `promised` have been emitted.
    """
    due = bounds.due(times[0], promised)
    schema = result_schema(plan)
    if len(due) == 0:
        return schema.empty_table()
    keys = bounds.entries[0].take(pa.array(due))
    columns: dict[str, Any] = {name: keys.column(name) for name in keys.column_names}
    for name, each in zip(("window_time", "window_end"), times, strict=True):
        at = each[due]
        columns[name] = pa.array(at, pa.int64(), mask=at == ENDED).cast(plan.ends_type)
    feeds = KeyShare(number, plan.shards, plan.key).feeds(keys, f"window/{number}")
    return punctuation_rows(schema, feeds, now_us, **columns).cast(schema)
