"""One shard of a join of newest rows: changes of both sides in, changes of the pairs out.

Pure logic over a :class:`~upstream.operators.runtime.store.Store`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.latest_join_reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..runtime.arrivals import micros
from ..runtime.key_pages import KeyPages
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from .arriving import numbers_of, rows_in, without_key
from .band import LEFT, RIGHT, SIDES
from .kept_columns import check_columns, columns_to_json
from .latest_plan import GONE, VERSION, LatestJoinPlan, LatestSide, VersionPlan
from .matching import equal_keys, matches, sorted_rows
from .plan import JOIN_TIME
from .side import NUMBER
from .versions import LatestVersions, places

__all__ = ["LatestJoinShard", "VersionShard"]

_LAYOUT = 1
_OF_LEFT = 32
"""Bits of a result's number below those of the left's version, where the left decides."""


class VersionShard:
    """One batch of a shard of one side's keys, ahead of the join.

    Parameters
    ----------
    number : int
        The shard's.
    plan : VersionPlan
    store : Store
    """

    def __init__(self, number: int, plan: VersionPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = read_head(store)
        if self._head:
            _check(self._head, plan.identity())
        self._versions = LatestVersions(self._store, "keys", plan.side, self._head.get("keys", {}))

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Return the newest rows of keys that have new ones, and tombstones where they were."""
        rows, _ = rows_in(frames, self._plan.side.schema)
        changes = self._versions.changes(rows)
        head = {"layout": _LAYOUT, "plan": self._plan.identity(), "keys": self._versions.to_json()}
        self._store.put("head", 0, json.dumps(head).encode())
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=int(micros(rows, "arrival").max(initial=0)),
            left_rows=rows.num_rows,
            results=changes.num_rows,
            left_kept=self._versions.rows,
            state_bytes=self._store.written,
        )
        return (changes if changes.num_rows else None), report


class _Side:
    """One side in a batch: the rows that were, what changes, and the rows that are."""

    def __init__(self, side: LatestSide, pages: KeyPages, changes: pa.Table) -> None:
        self.side = side
        self._pages = pages
        keyless = without_key(changes, side.on)
        self.keyless = changes.filter(pa.array(keyless & ~deleted_mask(changes).to_numpy()))
        self.gone = changes.filter(pa.chunked_array([pa.array(_flags(changes, GONE))]))
        changes = changes.filter(pa.array(~keyless)).combine_chunks()
        self.numbers = numbers_of(changes, side.on)
        self._changes = changes.append_column(NUMBER, pa.array(self.numbers))

    def read(self, numbers: Int64s) -> None:
        """Read the rows with some numbers, and apply the changes."""
        before = self._pages.read(self._pages.pages(numbers))
        names = tuple(dict.fromkeys([*self.side.key, *self.side.on]))
        deleted = deleted_mask(self._changes).to_numpy()
        at = places(before, self._changes, names)
        stays = np.ones(before.num_rows, dtype=np.bool_)
        stays[at[at >= 0]] = False
        kind = before.schema
        self.same = before.filter(pa.array(stays)).combine_chunks()
        self.new = self._changes.filter(pa.array(~deleted)).select(kind.names).cast(kind).combine_chunks()
        # What is removed, as it was, and with the version and the arrival of the row that removes it.
        removed = deleted & (at >= 0)
        was, cause = before.take(pa.array(at[removed])), self._changes.filter(pa.array(removed))
        for name in (VERSION, SYSTEM):
            was = was.set_column(was.schema.get_field_index(name), was.schema.field(name), cause.column(name))
        self.removed = was.combine_chunks()
        self._before = before.column(NUMBER).to_numpy()

    def keep(self) -> None:
        """Keep the rows that are; only pages with a change are written."""
        if not len(self.numbers):
            return
        pages = self._pages.pages(self.numbers)
        mine = self._pages.among(self._before, pages)
        now = self.now
        now = now.filter(pa.array(self._pages.among(now.column(NUMBER).to_numpy(), pages)))
        self._pages.write(pages, int(np.count_nonzero(mine)), now)

    @property
    def now(self) -> pa.Table:
        """The rows that are."""
        return pa.concat_tables([self.same, self.new]).combine_chunks()


class LatestJoinShard:
    """One batch of one shard.

    Parameters
    ----------
    number : int
        The shard's.
    plan : LatestJoinPlan
    store : Store
        The shard's state.

    Raises
    ------
    CheckpointError
        The state was written for another join, for other columns, or by another version.
    """

    def __init__(self, number: int, plan: LatestJoinPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = head = read_head(store)
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "right_rows", "results", "retracted")}
        self._versions = [
            LatestVersions(self._store, f"{name}_keys", side, head.get(f"{name}_keys", {})) if side.stays else None
            for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        self._pages: list[KeyPages] = []
        for name, side in zip(SIDES, plan.sides, strict=True):
            schema = pa.schema([*side.schema, pa.field(VERSION, pa.int64()), pa.field(NUMBER, pa.int64())])
            self._pages.append(KeyPages(self._store, name, NUMBER, schema, head.get(name, {})))
        if head:
            _check(head, plan.identity())
            check_columns(plan.sides, head["columns"], [each.rows for each in self._pages])

    def run(
        self, left: Sequence[bytes], right: Sequence[bytes], batch_id: int = -1
    ) -> tuple[pa.Table | None, LatestJoinReport]:
        """Apply the changes of both sides.

        Returns
        -------
        pyarrow.Table or None
            Pairs that are new or have changed, and tombstones of those that are gone; None if there are none.
        LatestJoinReport
        """
        now_us = 0
        sides: list[_Side] = []
        for at, frames in ((LEFT, left), (RIGHT, right)):
            versions, side = self._versions[at], self._plan.sides[at]
            rows, _ = rows_in(frames, side.schema if versions is not None else side.versioned)
            self._counts[f"{SIDES[at]}_rows"] += rows.num_rows
            now_us = max(now_us, int(micros(rows, "arrival").max(initial=0)))
            sides.append(_Side(side, self._pages[at], rows if versions is None else versions.changes(rows)))
        touched = np.concatenate([each.numbers for each in sides])
        for each in sides:
            each.read(touched)
        tables = self._to_one(*sides) if self._plan.to_one else self._pairs(*sides)
        for each in sides:
            each.keep()
        result = pa.concat_tables([self._plan.schema.empty_table(), *tables])
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(pc.sum(deleted_mask(result)).as_py() or 0)
        self._save()
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=self._pages[LEFT].rows,
            right_kept=self._pages[RIGHT].rows,
            state_bytes=self._store.written,
            **self._counts,
        )
        return (result if result.num_rows else None), report

    def _pairs(self, left: _Side, right: _Side) -> list[pa.Table]:
        """Return the changes where a row of either side may have many partners.

        A pair's number is the sum of both versions: whatever changes it anywhere makes it greater.
        """
        found: list[pa.Table] = []
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(one, two)
            found.append(self._given(one, at, two, other, _versions(one, at) + _versions(two, other)))
        # Of a pair that both sides leave there is one more change to come, where both have gone to.
        for one, two, less in (
            (left.removed, right.now, 0),
            (left.now, right.removed, 0),
            (left.removed, right.removed, 1),
        ):
            at, other = self._matched(one, two)
            number = _versions(one, at) + _versions(two, other) - less
            # A row that is new was in no pair that could be left: its tombstone deletes nothing.
            found.append(self._deleted(one, at, two, other, number))
        return found

    def _to_one(self, left: _Side, right: _Side) -> list[pa.Table]:
        """Return the changes where a row of the left has one partner at most.

        Results have the left's key, so the left's version decides, then the right's: where a row was before it moved,
        nothing is given, since what is given where it is now has a greater number.
        """
        met = np.zeros(left.same.num_rows, dtype=np.bool_)
        found: list[pa.Table] = []
        now = right.now
        at, other = self._matched(left.same, right.new)
        met[at] = True
        found.append(self._one(left.same, at, right.new, other))
        at, other = self._matched(left.same, right.removed)
        lost = ~met[at]
        gone = right.removed.take(pa.array(other[lost]))
        found.append(self._alone(left.same.take(pa.array(at[lost])), gone.column(VERSION).to_numpy(), gone))
        at, other = self._matched(left.new, now)
        found.append(self._one(left.new, at, now, other))
        alone = np.ones(left.new.num_rows, dtype=np.bool_)
        alone[at] = False
        rows = left.new.filter(pa.array(alone))
        found.append(self._alone(rows, np.zeros(rows.num_rows, dtype=np.int64)))
        keyless = left.keyless.append_column(NUMBER, pa.nulls(left.keyless.num_rows, pa.int64()))
        found.append(self._alone(keyless, np.zeros(keyless.num_rows, dtype=np.int64)))
        number = left.gone.column(VERSION).to_numpy() << _OF_LEFT
        found.append(self._tombstones(left.gone, None, number))
        return found

    def _one(self, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> pa.Table:
        return self._given(one, at, two, other, (_versions(one, at) << _OF_LEFT) + _versions(two, other))

    def _alone(self, rows: pa.Table, version: Int64s, cause: pa.Table | None = None) -> pa.Table:
        """Return rows of the left without a partner: with nulls, or as tombstones.

        `cause` has the rows of the right that have left them.
        """
        number = (rows.column(VERSION).to_numpy() << _OF_LEFT) + version
        if self._plan.how == "inner":
            return self._tombstones(rows, None, number, cause)
        return self._given(rows, np.arange(rows.num_rows), None, None, number, cause)

    def _matched(self, one: pa.Table, two: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the positions of rows with equal values of `on`."""
        none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if not one.num_rows or not two.num_rows:
            return none
        numbers = two.column(NUMBER).to_numpy()
        index = sorted_rows(numbers, np.zeros(len(numbers), dtype=np.int64), pa.table({"at": np.arange(len(numbers))}))
        back = index.table.column("at").to_numpy()
        zeros = np.zeros(one.num_rows, dtype=np.int64)
        found = list(matches(one.column(NUMBER).to_numpy(), zeros, zeros, index))
        if not found:
            return none
        at, other = np.concatenate([each[0] for each in found]), back[np.concatenate([each[1] for each in found])]
        if not self._plan.exact:
            same = equal_keys(one, self._plan.left.on, at, two, self._plan.right.on, other)
            mask = same.to_numpy(zero_copy_only=False)
            at, other = at[mask], other[mask]
        return at, other

    def _given(
        self,
        one: pa.Table,
        at: Int64s,
        two: pa.Table | None,
        other: Int64s | None,
        number: Int64s,
        cause: pa.Table | None = None,
    ) -> pa.Table:
        plan = self._plan
        rows = (one.take(pa.array(at)), None if two is None else two.take(pa.array(other)))
        columns: dict[str, Any] = {}
        for each in plan.columns:
            source = rows[each.side]
            columns[each.name] = (
                pa.nulls(len(at), plan.schema.field(each.name).type) if source is None else source.column(each.source)
            )
        if plan.has_time:
            times = [
                source.column(str(side.event_time))
                for source, side in zip(rows, plan.sides, strict=True)
                if source is not None
            ]
            columns[JOIN_TIME] = times[0] if len(times) == 1 else _later(*times)
        return self._with_system(columns, (rows[0], cause if two is None else rows[1]), number, deleted=False)

    def _deleted(self, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s, number: Int64s) -> pa.Table:
        return self._tombstones(one.take(pa.array(at)), two.take(pa.array(other)), number)

    def _tombstones(
        self, left: pa.Table, right: pa.Table | None, number: Int64s, cause: pa.Table | None = None
    ) -> pa.Table:
        plan = self._plan
        rows = (left, right)
        columns: dict[str, Any] = {}
        for each in plan.columns:
            source = rows[each.side]
            columns[each.name] = (
                source.column(each.source)
                if source is not None and each.name in plan.key
                else pa.nulls(left.num_rows, plan.schema.field(each.name).type)
            )
        if plan.has_time:
            columns[JOIN_TIME] = pa.nulls(left.num_rows, plan.schema.field(JOIN_TIME).type)
        return self._with_system(columns, (left, cause if right is None else right), number, deleted=True)

    def _with_system(
        self, columns: dict[str, Any], rows: tuple[pa.Table, pa.Table | None], number: Int64s, *, deleted: bool
    ) -> pa.Table:
        schema = self._plan.schema
        arrival = micros(rows[0], "arrival")
        first = micros(rows[0], "first_arrival", arrival)
        if rows[1] is not None:
            later = micros(rows[1], "arrival")
            # The pair is there since the later of its rows came.
            first = np.where(later > arrival, micros(rows[1], "first_arrival", later), first)
            arrival = np.maximum(arrival, later)
        system = system_array(
            source=f"join/{self._number}",
            seq=number,
            arrival_us=arrival,
            first_arrival_us=first,
            deleted=np.full(len(number), deleted),
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _save(self) -> None:
        head: dict[str, Any] = {
            **self._counts,
            "layout": _LAYOUT,
            "plan": self._plan.identity(),
            "columns": columns_to_json(self._plan.sides),
            **{name: pages.to_json() for name, pages in zip(SIDES, self._pages, strict=True)},
        }
        for name, versions in zip(SIDES, self._versions, strict=True):
            if versions is not None:
                head[f"{name}_keys"] = versions.to_json()
        self._store.put("head", 0, json.dumps(head).encode())


def _later(one: pa.ChunkedArray, two: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow has no element-wise maximum of times in a zone.
    return pc.if_else(pc.less(one, two), two, one)


def _versions(rows: pa.Table, at: Int64s) -> Int64s:
    return rows.column(VERSION).to_numpy()[at]


def _flags(rows: pa.Table, name: str) -> Any:
    return pc.fill_null(rows.column(name), False).to_numpy()


def _check(head: dict[str, Any], identity: dict[str, str]) -> None:
    check_identity(
        head["plan"],
        identity,
        "the state of the join in this checkpoint was written",
        "inputs, keys and number of shards",
        other_layout(head["layout"], _LAYOUT),
    )
