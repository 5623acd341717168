"""One shard of the newest rows of each key and window, before windows by group, as pure logic over a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...core.feedback.latest_join_reports import LatestJoinReport
from ...core.rows.widening import with_nulls
from ..joins.arriving import checked_rows, rows_in
from ..joins.versions import LatestVersions
from ..runtime.arrivals import micros
from ..runtime.pack import check_keys
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from .open_windows import OpenWindows, by_segment
from .window_plan import GroupWindowPlan

__all__ = ["WindowVersionShard", "WindowVersions"]

_LAYOUT = 1


class WindowVersions:
    """The newest row of each key in each window that is not final."""

    def __init__(self, store: Store, plan: GroupWindowPlan, saved: Any) -> None:
        self._store = store
        self._plan = plan
        self._saved: dict[str, Any] = dict(saved)

    def to_json(self) -> dict[str, Any]:
        return self._saved

    @property
    def rows(self) -> int:
        """The number of keys of windows in the state."""
        return sum(self._segment(name).rows for name in self._saved)

    def changes(self, rows: pa.Table) -> pa.Table:
        """Return changes of keys in windows, as :meth:`~upstream.operators.joins.versions.LatestVersions.changes`."""
        found = [self._plan.side.versioned.empty_table()]
        for segment, part in by_segment(self._plan, rows):
            versions = self._segment(str(segment))
            found.append(versions.changes(part))
            self._saved[str(segment)] = versions.to_json()
        return pa.concat_tables(found).combine_chunks()

    def forget(self, final: int) -> None:
        """Remove the segments whose windows are all final."""
        for name in [each for each in self._saved if (int(each) + 1) * self._plan.segment - 1 <= final]:
            self._segment(name).clear()
            del self._saved[name]

    def _segment(self, name: str) -> LatestVersions:
        return LatestVersions(self._store, f"keys.{name}", self._plan.side, self._saved.get(name, {}))


class WindowVersionShard:
    """One batch of one shard. Raises CheckpointError for state of another plan or version.

    After :meth:`run`, `late` holds the rows of a final window.
    """

    def __init__(self, number: int, plan: GroupWindowPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        head = read_head(store)
        if head:
            check_identity(
                head["plan"],
                plan.identity(),
                "the windows of newest rows in this checkpoint were begun",
                "windows, group, key, aggregates and number of shards",
                other_layout(head["layout"], _LAYOUT),
            )
        self._windows = OpenWindows(plan, head.get("windows", {}))
        self._versions = WindowVersions(self._store, plan, head.get("keys", {}))
        self.late: pa.Table | None = None

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Return the newest rows of keys with new ones, and tombstones of the rows they replace.

        Shard 0 forwards the punctuation.
        """
        plan = self._plan
        rows, punctuation = rows_in(frames, plan.window.schema)
        check_keys(checked_rows(rows, tombstones=True, step="window"), plan.key, "window")
        changes = self._versions.changes(self._windows.placed(rows))
        self.late = self._windows.missed
        finals = self._windows.hear(punctuation)
        self._versions.forget(finals.through)
        given = [changes]
        if self._number == 0 and punctuation.num_rows:
            given.append(with_nulls(punctuation, changes.schema).cast(changes.schema))
        result = pa.concat_tables(given)
        head = {
            "layout": _LAYOUT,
            "plan": plan.identity(),
            "windows": self._windows.to_json(),
            "keys": self._versions.to_json(),
        }
        self._store.put("head", 0, json.dumps(head).encode())
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=int(micros(rows, "arrival").max(initial=0)),
            left_rows=rows.num_rows,
            results=changes.num_rows,
            left_kept=self._versions.rows,
            late=self._windows.late,
            outside=self._windows.outside,
            state_bytes=self._store.written,
        )
        return (result if result.num_rows else None), report
