"""Shards of windows by group over newest rows: each key's newest row by window, and the groups' windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.columns import with_nulls
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array, system_field
from ...core.watermark.bounds import bounds_in
from ..joins.side import checked_rows, rows_in, without_key
from ..joins.versions import LatestVersions
from ..runtime.feeds import ENDED, FeedBounds, key_mask
from ..runtime.pack import check_keys
from ..runtime.shard import Shard, ShardInput
from ..state.runs import RunFiles
from ..state.store import Store
from ..windows.emission import expand
from ..windows.shards.results import punctuation_before, result_schema, window_columns
from .groups import KeptGroups
from .plan import WINDOW, GroupWindowPlan


class Finals(NamedTuple):
    """The windows ``before < w <= through``, which become final in a batch."""

    before: int
    through: int
    ended: bool  # whether all input partitions have ended


class OpenWindows:
    """A shard's progress through windows: those up to `final` are final.

    `late` counts rows of a final window, `outside` those in no window. `missed` holds the late rows of this batch.
    """

    def __init__(self, plan: GroupWindowPlan, saved: Any) -> None:
        self._plan = plan
        self._feeds = FeedBounds(saved.get("feeds"))
        self.final = int(saved.get("final", LOWEST))
        self.late = int(saved.get("late", 0))
        self.outside = int(saved.get("outside", 0))
        self.missed: pa.Table | None = None

    def to_json(self) -> dict[str, Any]:
        return {"feeds": self._feeds.to_json(), "final": self.final, "late": self.late, "outside": self.outside}

    def placed(self, rows: pa.Table) -> pa.Table:
        """Return each row once for each of its windows that is not final, with a column of the window."""
        if rows.num_rows == 0:
            return rows.append_column(WINDOW, pa.array([], pa.int64()))
        windows = self._plan.window.windows
        first, last = windows.wids(self._plan.window.times(rows))
        nowhere = last < first
        self.outside += int(np.count_nonzero(nowhere))
        late = (first <= self.final) & ~nowhere
        if late.any():
            missed = self.missed = rows.filter(pa.array(late))
            self.late += missed.num_rows
            first = np.where(late, self.final + 1, first)
        row, window = expand(first, last)
        return rows.take(pa.array(row)).append_column(WINDOW, pa.array(window))

    def still_open(self, rows: pa.Table) -> pa.Table:
        """Return placed rows without those of final windows, which are counted as late."""
        late = rows.column(WINDOW).to_numpy() <= self.final
        if not late.any():
            return rows
        self.late += int(np.count_nonzero(late))
        return rows.filter(pa.array(~late))

    def hear(self, punctuation: pa.Table) -> Finals:
        """Raise the bounds of input partitions by punctuation; return the windows that become final."""
        plan = self._plan.window
        if punctuation.num_rows:
            # Punctuation of one key makes no window of a group final.
            names = dict.fromkeys([*self._plan.key, *self._plan.group])
            punctuation = punctuation.filter(
                pa.array(~key_mask(punctuation, [name for name in names if name != plan.time]))
            )
        if punctuation.num_rows:
            assert plan.time is not None
            name = plan.time
            bounds = bounds_in(punctuation.column(name), lambda times: plan.times(pa.table([times], [name])))
            self._feeds.hear(system_field(punctuation, "source").to_pylist(), bounds.tolist())
        bound, before = self._feeds.low_watermark, self.final
        if bound == ENDED:
            self.final = max(before, int(plan.windows.last_complete(ENDED)))
        elif bound is not None and bound > LOWEST + plan.lateness_us:
            self.final = max(before, int(plan.windows.last_complete(bound - plan.lateness_us)))
        return Finals(before, self.final, bound == ENDED)


def by_segment(plan: GroupWindowPlan, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each segment of windows; one segment has all if windows never become final."""
    if not plan.ends:
        yield 0, rows
        return
    segments: Int64s = rows.column(WINDOW).to_numpy() // plan.segment
    for segment in np.unique(segments).tolist():
        yield segment, rows.filter(pa.array(segments == segment)).combine_chunks()


_BEGAN = "the windows of newest rows in this checkpoint were begun"
_SAME = "windows, group, key, aggregates and number of shards"


class WindowVersionState:
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


class WindowVersionShard(Shard[GroupWindowPlan, LatestJoinReport]):
    """A shard of the newest row of each key in each window; `late` holds the rows of a final window."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport

    def __init__(self, number: int, plan: GroupWindowPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        self._windows = OpenWindows(plan, head.get("windows", {}))
        self._versions = WindowVersionState(self._store, plan, head.get("keys", {}))

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return new newest rows, tombstones of the rows they replace, and in shard 0 the punctuation."""
        plan = self._plan
        rows, punctuation = rows_in(given.left, plan.window.schema)
        self._advance_clock([rows])
        check_keys(checked_rows(rows, tombstones=True, step="window"), plan.key, "window")
        changes = self._versions.changes(self._windows.placed(rows))
        self.late = self._windows.missed
        finals = self._windows.hear(punctuation)
        self._versions.forget(finals.through)
        result = changes
        if self._number == 0 and punctuation.num_rows:
            result = pa.concat_tables([changes, with_nulls(punctuation, changes.schema).cast(changes.schema)])
        return result, {
            "left_rows": rows.num_rows,
            "results": changes.num_rows,
            "left_kept": self._versions.rows,
            "late": self._windows.late,
            "outside": self._windows.outside,
        }

    def saved(self) -> dict[str, Any]:
        return {"windows": self._windows.to_json(), "keys": self._versions.to_json()}


class WindowGroupShard(Shard[GroupWindowPlan, LatestJoinReport]):
    """A shard of windows by group; `late` holds the rows of a final window."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport
    counted = ("left_rows", "results", "retracted", "without_key")

    def __init__(self, number: int, plan: GroupWindowPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        self._windows = OpenWindows(plan, head.get("windows", {}))
        self._segments: dict[str, Any] = dict(head.get("segments", {}))
        keys = head.get("keys", {})
        self._newest = WindowVersionState(self._store, plan, keys) if plan.stays and plan.ends else None
        self._table = LatestVersions(self._store, "keys", plan.side, keys) if plan.stays and not plan.ends else None

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return changed and final windows, tombstones of windows that are empty again, and the shard's punctuation."""
        plan = self._plan
        rows, punctuation = rows_in(given.left, plan.taken)
        self._counts["left_rows"] += rows.num_rows
        self._advance_clock((rows, punctuation))
        now_us = self._now_us
        changes = self._changes(rows)
        self.late = self._windows.missed
        keyless = without_key(changes, plan.group)
        self._counts["without_key"] += int(np.count_nonzero(keyless & ~deleted_mask(changes).to_numpy()))
        changes = changes.filter(pa.array(~keyless))
        # A row of the table may leave its windows at any time: none is final.
        finals = self._windows.hear(punctuation if plan.ends else punctuation.slice(0, 0))
        found = [*self._changed(changes, finals), *self._finals(finals, now_us)]
        result = pa.concat_tables([result_schema(plan.window).empty_table(), *found])
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(np.count_nonzero(deleted_mask(result).to_numpy()))
        if finals.through > finals.before:
            following = None if finals.ended else finals.through + 1
            result = pa.concat_tables([result, punctuation_before(plan.window, following, self._number, now_us)])
            self._forget(finals.through)
        return result, {
            "left_kept": sum(self._segment(name).rows for name in self._segments),
            "late": self._windows.late,
            "outside": self._windows.outside,
        }

    def saved(self) -> dict[str, Any]:
        kept = self._newest or self._table
        keys = {} if kept is None else kept.to_json()
        return {"windows": self._windows.to_json(), "segments": self._segments, "keys": keys}

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
        columns: dict[str, Any] = {name: groups.column(name) for name in self._plan.group}
        columns |= {**window_columns(plan, groups.column(WINDOW).to_numpy()), "final": pa.array(np.full(n, final))}
        for name in plan.aggregates:
            columns[name] = pa.nulls(n, schema.field(name).type) if values is None else values.column(name)
        columns[SYSTEM] = system_array(
            source=f"window/{self._number}",
            seq=self._sequence(n),
            arrival_us=arrival,
            deleted=np.full(n, values is None),
        )
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)
