"""The reduction of a task's rows to partial aggregates by key and pane, before the shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ....core.feedback.reports import WindowReport, read_reports
from ....core.rows.exact_integers import HIGHEST
from ....core.rows.frames import by_bucket, some_at_once, split_punctuation, to_frame
from ...runtime.pack import check_keys, micros, packed
from .plan import WindowPlan

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
