"""One shard of a join of newest rows: changes of both sides in, changes of the pairs out.

Pure logic over a :class:`~upstream.operators.runtime.store.Store`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.latest_join_reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..runtime.arrivals import micros
from ..runtime.run_files import RunFiles
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from .arriving import rows_in
from .band import LEFT, RIGHT, SIDES
from .forgetting import Forgetting
from .kept_columns import check_columns, columns_to_json
from .key_runs import KeyRuns, ranges
from .latest_plan import VERSION, LatestJoinPlan, VersionPlan
from .latest_side import ARRIVAL, FIRST, NewestSide, kept_schema
from .matching import equal_keys
from .plan import JOIN_TIME
from .side import NUMBER
from .versions import LatestVersions

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
    files : RunFiles, optional
    """

    def __init__(self, number: int, plan: VersionPlan, store: Store, files: RunFiles | None = None) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = read_head(store)
        if self._head:
            _check(self._head, plan.identity())
        self._versions = LatestVersions(self._store, "keys", plan.side, self._head.get("keys", {}), files)

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Return the newest rows of keys that have new ones, and tombstones where they were."""
        rows, punctuation = rows_in(frames, self._plan.side.schema)
        changes = self._versions.changes(rows)
        self._versions.hear(punctuation)
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


class LatestJoinShard:
    """One batch of one shard.

    Parameters
    ----------
    number : int
        The shard's.
    plan : LatestJoinPlan
    store : Store
        The shard's state.
    files : RunFiles, optional

    Raises
    ------
    CheckpointError
        The state was written for another join, for other columns, or by another version.
    """

    def __init__(self, number: int, plan: LatestJoinPlan, store: Store, files: RunFiles | None = None) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = head = read_head(store)
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "right_rows", "results", "retracted")}
        self._forgetting = [Forgetting(side, head.get(name, {})) for name, side in zip(SIDES, plan.sides, strict=True)]
        self._runs = [
            KeyRuns(
                self._store, name, NUMBER, kept_schema(side), head.get(name, {}),
                () if side.one else side.key, files, each.forget if side.stays else None,
            )
            for name, side, each in zip(SIDES, plan.sides, self._forgetting, strict=True)
        ]  # fmt: skip
        if head:
            _check(head, plan.identity())
            check_columns(plan.sides, head["columns"], [each.rows for each in self._runs])

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
        sides: list[NewestSide] = []
        heard: list[pa.Table] = []
        for at, frames in ((LEFT, left), (RIGHT, right)):
            side = self._plan.sides[at]
            rows, punctuation = rows_in(frames, side.schema if side.stays else side.versioned)
            self._counts[f"{SIDES[at]}_rows"] += rows.num_rows
            now_us = max(now_us, int(micros(rows, "arrival").max(initial=0)))
            sides.append(NewestSide(side, self._runs[at], rows, self._forgetting[at]))
            heard.append(punctuation)
        touched = np.concatenate([each.numbers for each in sides])
        for each in sides:
            each.read(touched)
        tables = self._to_one(*sides) if self._plan.to_one else self._pairs(*sides)
        for each in sides:
            each.keep()
        for forgetting, punctuation in zip(self._forgetting, heard, strict=True):
            forgetting.hear(punctuation)
        result = pa.concat_tables([self._plan.schema.empty_table(), *tables])
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(pc.sum(deleted_mask(result)).as_py() or 0)
        self._save()
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=self._runs[LEFT].rows,
            right_kept=self._runs[RIGHT].rows,
            state_bytes=self._store.written,
            **self._counts,
        )
        return (result if result.num_rows else None), report

    def _pairs(self, left: NewestSide, right: NewestSide) -> Iterator[pa.Table]:
        """Yield the changes where a row of either side may have many partners.

        A pair's number is the sum of both versions: whatever changes it anywhere makes it greater.
        """
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(one, two)
            if len(at):
                yield self._given(one, at, two, other, _versions(one, at) + _versions(two, other))
        # Of a pair that both sides leave there is one more change to come, where both have gone to.
        for one, two, less in (
            (left.removed, right.now, 0),
            (left.now, right.removed, 0),
            (left.removed, right.removed, 1),
        ):
            at, other = self._matched(one, two)
            if len(at):
                number = _versions(one, at) + _versions(two, other) - less
                # A row that is new was in no pair that could be left: its tombstone deletes nothing.
                yield self._tombstones(one.take(pa.array(at)), two.take(pa.array(other)), number)

    def _to_one(self, left: NewestSide, right: NewestSide) -> Iterator[pa.Table]:
        """Yield the changes where a row of the left has one partner at most.

        Results have the left's key, so the left's version decides, then the right's: where a row was before it moved,
        nothing is given, since what is given where it is now has a greater number.
        """
        met = np.zeros(left.same.num_rows, dtype=np.bool_)
        at, other = self._matched(left.same, right.new)
        met[at] = True
        yield from self._one(left.same, at, right.new, other)
        at, other = self._matched(left.same, right.removed)
        lost = ~met[at]
        gone = right.removed.take(pa.array(other[lost]))
        yield from self._alone(left.same.take(pa.array(at[lost])), _numbers(gone, VERSION), gone)
        at, other = self._matched(left.new, right.now)
        yield from self._one(left.new, at, right.now, other)
        alone = np.ones(left.new.num_rows, dtype=np.bool_)
        alone[at] = False
        for rows in (left.new.filter(pa.array(alone)), left.keyless):
            yield from self._alone(rows, np.zeros(rows.num_rows, dtype=np.int64))
        if left.gone.num_rows:
            yield self._tombstones(left.gone, None, _numbers(left.gone, VERSION) << _OF_LEFT)

    def _one(self, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> Iterator[pa.Table]:
        if len(at):
            yield self._given(one, at, two, other, (_versions(one, at) << _OF_LEFT) + _versions(two, other))

    def _alone(self, rows: pa.Table, version: Int64s, cause: pa.Table | None = None) -> Iterator[pa.Table]:
        """Yield rows of the left without a partner: with nulls, or as tombstones.

        `cause` has the rows of the right that have left them.
        """
        if not rows.num_rows:
            return
        number = (_numbers(rows, VERSION) << _OF_LEFT) + version
        if self._plan.how == "inner":
            yield self._tombstones(rows, None, number, cause)
        else:
            yield self._given(rows, np.arange(rows.num_rows), None, None, number, cause)

    def _matched(self, one: pa.Table, two: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the positions of rows with equal values of `on`."""
        if not one.num_rows or not two.num_rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        probes, numbers = one.column(NUMBER).to_numpy(), two.column(NUMBER).to_numpy()
        order = np.argsort(numbers, kind="stable")
        other, counts = ranges(numbers[order], probes, probes)
        at, other = np.repeat(np.arange(len(probes)), counts), order[other]
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
        arrival, first = _numbers(rows[0], ARRIVAL), _numbers(rows[0], FIRST)
        if rows[1] is not None:
            later = _numbers(rows[1], ARRIVAL)
            # The pair is there since the later of its rows came.
            first = np.where(later > arrival, _numbers(rows[1], FIRST), first)
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
            **{
                name: {**runs.to_json(), **forgetting.to_json()}
                for name, runs, forgetting in zip(SIDES, self._runs, self._forgetting, strict=True)
            },
        }
        self._store.put("head", 0, json.dumps(head).encode())


def _later(one: pa.ChunkedArray, two: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow has no element-wise maximum of times in a zone.
    return pc.if_else(pc.less(one, two), two, one)


def _versions(rows: pa.Table, at: Int64s) -> Int64s:
    return _numbers(rows, VERSION)[at]


def _numbers(rows: pa.Table, name: str) -> Int64s:
    return rows.column(name).to_numpy()


def _check(head: dict[str, Any], identity: dict[str, str]) -> None:
    check_identity(
        head["plan"],
        identity,
        "the state of the join in this checkpoint was written",
        "inputs, keys and number of shards",
        other_layout(head["layout"], _LAYOUT),
    )
