"""One shard of windows by group over newest rows, as pure logic over a store: from rows and tombstones to windows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.latest_join_reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..joins.arriving import checked_rows, rows_in, without_key
from ..joins.versions import LatestVersions
from ..runtime.arrivals import micros
from ..runtime.pack import check_keys
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from ..windows.shards.results import punctuation_before, result_schema, window_columns
from .kept_groups import KeptGroups
from .open_windows import Finals, OpenWindows, by_segment
from .version_shard import WindowVersions
from .window_plan import WINDOW, GroupWindowPlan

__all__ = ["WindowGroupShard"]

_LAYOUT = 1


class WindowGroupShard:
    """One batch of one shard. Raises CheckpointError for state of another plan or version.

    After :meth:`run`, `late` holds the rows of a final window.
    """

    def __init__(self, number: int, plan: GroupWindowPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = head = read_head(store)
        if head:
            check_identity(
                head["plan"],
                plan.identity(),
                "the windows of newest rows in this checkpoint were begun",
                "windows, group, key, aggregates and number of shards",
                other_layout(head["layout"], _LAYOUT),
            )
        self._windows = OpenWindows(plan, head.get("windows", {}))
        self._segments: dict[str, Any] = dict(head.get("segments", {}))
        keys = head.get("keys", {})
        self._newest = WindowVersions(self._store, plan, keys) if plan.stays and plan.ends else None
        self._table = LatestVersions(self._store, "keys", plan.side, keys) if plan.stays and not plan.ends else None
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "results", "retracted", "without_key")}
        self.late: pa.Table | None = None

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Apply the changes, and return the windows that have changed or become final; None if there are none.

        The result includes tombstones of windows that are empty again, and the shard's own punctuation.
        """
        plan = self._plan
        rows, punctuation = rows_in(frames, plan.taken)
        self._counts["left_rows"] += rows.num_rows
        now_us = max(int(self._head.get("now_us", 0)), *(_latest(each) for each in (rows, punctuation)))
        self._head["now_us"] = now_us
        changes = self._changes(rows)
        self.late = self._windows.missed
        keyless = without_key(changes, plan.group)
        self._counts["without_key"] += int(np.count_nonzero(keyless & ~deleted_mask(changes).to_numpy()))
        changes = changes.filter(pa.array(~keyless))
        # A row of the table may leave its windows at any time: none is final.
        finals = self._windows.hear(punctuation if plan.ends else punctuation.slice(0, 0))
        given = [*self._changed(changes, finals), *self._finals(finals, now_us)]
        result = pa.concat_tables([result_schema(plan.window).empty_table(), *given])
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(np.count_nonzero(deleted_mask(result).to_numpy()))
        if finals.through > finals.before:
            following = None if finals.ended else finals.through + 1
            result = pa.concat_tables([result, punctuation_before(plan.window, following, self._number, now_us)])
            self._forget(finals.through)
        self._save()
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=sum(self._segment(name).rows for name in self._segments),
            late=self._windows.late,
            outside=self._windows.outside,
            state_bytes=self._store.written,
            **self._counts,
        )
        return (result if result.num_rows else None), report

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Return rows that enter windows, and tombstones, with former values, of rows that leave them."""
        if self._plan.stays:
            check_keys(rows, self._plan.key, "window")
        if self._newest is not None:
            return self._newest.changes(self._windows.placed(checked_rows(rows, tombstones=True, step="window")))
        if self._plan.ends:
            return self._windows.still_open(rows)
        changes = rows if self._table is None else self._table.changes(rows.combine_chunks())
        return self._windows.placed(changes)

    def _changed(self, changes: pa.Table, finals: Finals) -> list[pa.Table]:
        found: list[pa.Table] = []
        if changes.num_rows == 0:
            return found
        for segment, part in by_segment(self._plan, changes):
            groups = self._segment(str(segment))
            changed = groups.changed(part.combine_chunks())
            self._segments[str(segment)] = groups.to_json()
            if self._plan.early or not self._plan.ends:
                # Windows that become final in this batch are emitted as final results only.
                still = changed.groups.column(WINDOW).to_numpy() > finals.through
                mask = pa.array(still)
                found.append(
                    self._given(changed.groups.filter(mask), changed.values.filter(mask), changed.arrival[still])
                )
                found.append(self._given(changed.gone, None, changed.gone_arrival))
        return found

    def _finals(self, finals: Finals, now_us: int) -> list[pa.Table]:
        """Return the results of windows that become final."""
        found: list[pa.Table] = []
        size = self._plan.segment
        for name in sorted(self._segments, key=int):
            first = int(name) * size
            if first > finals.through or first + size - 1 <= finals.before or finals.through == finals.before:
                continue
            groups, values = self._segment(name).all_groups()
            windows = groups.column(WINDOW).to_numpy()
            due = (windows > finals.before) & (windows <= finals.through)
            mask = pa.array(due)
            arrival = np.full(int(np.count_nonzero(due)), now_us, dtype=np.int64)
            found.append(self._given(groups.filter(mask), values.filter(mask), arrival, final=True))
        return found

    def _forget(self, final: int) -> None:
        size = self._plan.segment
        for name in [each for each in self._segments if (int(each) + 1) * size - 1 <= final]:
            self._segment(name).clear()
            del self._segments[name]
        if self._newest is not None:
            self._newest.forget(final)

    def _segment(self, name: str) -> KeptGroups:
        return KeptGroups(self._store, f"groups.{name}", self._plan.groups, self._segments.get(name, {}), results=True)

    def _given(self, groups: pa.Table, values: pa.Table | None, arrival: Int64s, *, final: bool = False) -> pa.Table:
        """Return results, or tombstones of windows without rows."""
        plan = self._plan.window
        schema, n = result_schema(plan), groups.num_rows
        first = int(self._head.get("seq", 0))
        self._head["seq"] = first + n
        columns: dict[str, Any] = {name: groups.column(name) for name in self._plan.group}
        columns |= {**window_columns(plan, groups.column(WINDOW).to_numpy()), "final": pa.array(np.full(n, final))}
        for name in plan.aggregates:
            columns[name] = pa.nulls(n, schema.field(name).type) if values is None else values.column(name)
        columns[SYSTEM] = system_array(
            source=f"window/{self._number}",
            seq=first + np.arange(n, dtype=np.int64),
            arrival_us=arrival,
            deleted=np.full(n, values is None),
        )
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _save(self) -> None:
        kept = self._newest or self._table
        head = {
            **self._counts,
            "layout": _LAYOUT,
            "plan": self._plan.identity(),
            "seq": self._head.get("seq", 0),
            "now_us": self._head["now_us"],
            "windows": self._windows.to_json(),
            "segments": self._segments,
            "keys": {} if kept is None else kept.to_json(),
        }
        self._store.put("head", 0, json.dumps(head).encode())


def _latest(rows: pa.Table) -> int:
    return int(micros(rows, "arrival").max(initial=0))
