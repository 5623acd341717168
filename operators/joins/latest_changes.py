"""One shard of a join of newest rows: the changes of its results when rows of either side change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError
from ...core.feedback.reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ...core.rows.text import value_texts
from ..runtime.shard import Shard, ShardInput
from ..state.key_runs import KeyRuns, ranges
from ..state.runs import RunFiles
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES
from .latest_plan import VERSION, LatestJoinPlan, LatestSide, VersionPlan
from .pair_kernel import SortedRows, equal_keys, matches
from .pairs import PairCondition, pair_condition
from .plan import JOIN_TIME, ResultColumn, check_columns, columns_to_json
from .side import NUMBER, as_schema, rows_in
from .versions import ARRIVAL, FIRST, DeletionRetention, Expiry, LatestVersions, NewestSide, kept_schema

NO_ROW = "\\N"
"""The text of a missing row. No key has it, since a backslash in a key is doubled."""


def check_key_texts(schema: pa.Schema, key: Sequence[str], name: str) -> None:
    """Refuse an update key with binary or nested columns, of which :func:`key_texts` cannot make text."""
    for column in key:
        kind = schema.field(column).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise SchemaError(
                f"the key of the {name} stream has {column} of type {kind}, and results name both keys as text",
                expected="keys of text, numbers, dates, and times",
                hint="make text of the column where rows are read: read(…, select='hex(a) AS a, …')",
            )


def key_texts(rows: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Return the key of each row as text, equal only for equal keys; the key must have no nulls.

    Commas separate the values of several columns. Commas in the values get a backslash, and backslashes are doubled.
    """
    parts = [pc.replace_substring(value_texts(rows.column(name)), "\\", "\\\\") for name in key]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(pc.replace_substring(each, ",", "\\,") for each in parts), ",")


Rows = tuple[pa.Table | None, pa.Table | None]
"""Rows of the left and of the right, one for each result; None for no row."""


class LatestResults:
    """The builder of a shard's results."""

    def __init__(self, plan: LatestJoinPlan, shard: int) -> None:
        self._plan = plan
        self._source = f"join/{shard}"
        self._on = dict(zip(plan.left.on, plan.right.on, strict=True))

    def given(self, rows: Rows, number: Int64s, cause: pa.Table | None = None) -> pa.Table:
        """Return results with the values of rows of both sides.

        The key's result with the greatest `number` counts. A result has the latest arrival of its rows and of `cause`,
        rows that changed it without being part of it.
        """
        columns = {each.name: self._column(each, rows) for each in self._plan.columns}
        if self._plan.has_time:
            times = [
                table.column(str(side.event_time))
                for table, side in zip(rows, self._plan.sides, strict=True)
                if table is not None
            ]
            columns[JOIN_TIME] = times[0] if len(times) == 1 else _later(*times)
        return self._whole(columns, rows, number, cause, deleted=False)

    def tombstones(self, rows: Rows, number: Int64s, cause: pa.Table | None = None) -> pa.Table:
        """Return tombstones of results, with values in the key only. The arguments are those of :meth:`given`."""
        key = self._plan.key
        columns = {each.name: self._column(each, rows) for each in self._plan.columns if each.name in key}
        return self._whole(columns, rows, number, cause, deleted=True)

    def _column(self, each: ResultColumn, rows: Rows) -> pa.ChunkedArray | pa.Array:
        source = rows[each.side]
        if source is not None:
            return source.column(each.source)
        other = rows[1 - each.side]
        if other is not None and each.side == LEFT and each.source in self._on:
            return other.column(self._on[each.source])
        return pa.nulls(len(other) if other is not None else 0, self._plan.schema.field(each.name).type)

    def _whole(
        self, columns: dict[str, Any], rows: Rows, number: Int64s, cause: pa.Table | None, *, deleted: bool
    ) -> pa.Table:
        plan, schema, n = self._plan, self._plan.schema, len(number)
        for name, side, table in zip(plan.own_key, plan.sides, rows, strict=False):
            columns[name] = pa.array([NO_ROW] * n, pa.string()) if table is None else key_texts(table, side.key)
        columns[SYSTEM] = pa.chunked_array([self._system(rows, number, cause, deleted)]).cast(schema.field(SYSTEM).type)
        for field in schema:
            if field.name not in columns:
                columns[field.name] = pa.nulls(n, field.type)
        return as_schema(pa.table(columns), schema)

    def _system(self, rows: Rows, number: Int64s, cause: pa.Table | None, deleted: bool) -> pa.StructArray:
        first_row, *others = [table for table in (rows[LEFT], rows[RIGHT], cause) if table is not None]
        arrival, first = _numbers(first_row, ARRIVAL), _numbers(first_row, FIRST)
        for table in others:
            later = _numbers(table, ARRIVAL)
            # A pair exists from the arrival of its later row on.
            first = np.where(later > arrival, _numbers(table, FIRST), first)
            arrival = np.maximum(arrival, later)
        return system_array(
            source=self._source,
            seq=number,
            arrival_us=arrival,
            first_arrival_us=first,
            deleted=np.full(len(number), deleted),
        )


def _later(one: pa.ChunkedArray, two: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow has no element-wise maximum of times in a zone.
    return pc.if_else(pc.less(one, two), two, one)


def _numbers(rows: pa.Table, name: str) -> Int64s:
    return rows.column(name).to_numpy()


_OF_ONE = 32
"""The low bits of a result's number, below the version of the side's row that decides first."""


class LatestChanges:
    """The changes of one batch of a shard; `turn` numbers the shard's batches from 1 on."""

    def __init__(
        self,
        plan: LatestJoinPlan,
        results: LatestResults,
        left: NewestSide,
        right: NewestSide,
        turn: int,
        condition: PairCondition | None = None,
    ) -> None:
        self._plan = plan
        self._condition = condition
        self._results = results
        self._sides = (left, right)
        self._turn = turn

    def tables(self) -> Iterator[pa.Table]:
        """Yield results that are new or have changed, and tombstones of those that are gone."""
        plan = self._plan
        if plan.of is not None:
            yield from self._to_one(plan.of)
        elif plan.whole:
            yield from self._by_on()
        elif plan.left_alone:
            yield from self._with_or_without(LEFT, partner=plan.how == "semi")
        else:
            yield from self._pairs()
            for side in (LEFT, RIGHT):
                if plan.gives_alone(side):
                    yield from self._with_or_without(side)

    def _pairs(self) -> Iterator[pa.Table]:
        """Yield the changes of pairs where a row of either side may have many partners.

        A pair's number is the sum of both versions, so any change of the pair, in any shard, increases it.
        """
        left, right = self._sides
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(LEFT, one, two)
            if len(at):
                number = _versions(one, at) + _versions(two, other)
                yield self._results.given((one.take(pa.array(at)), two.take(pa.array(other))), number)
        # If both sides leave a pair, one more change follows, at the place where both have gone.
        for one, two, less in (
            (left.removed, right.remaining, 0),
            (left.remaining, right.removed, 0),
            (left.removed, right.removed, 1),
        ):
            at, other = self._matched(LEFT, one, two)
            yield from self._retract(one, at, two, other, less)
        if self._plan.selects:
            one, two = left.remaining, right.remaining
            at, other = self._matched(LEFT, one, two)
            at, other = self._find_parted(at, other)
            yield from self._retract(one, at, two, other, 0)

    def _retract(self, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s, less: int) -> Iterator[pa.Table]:
        if len(at):
            number = _versions(one, at) + _versions(two, other) - less
            yield self._results.tombstones((one.take(pa.array(at)), two.take(pa.array(other))), number)

    def _find_parted(self, at: Int64s, other: Int64s) -> tuple[Int64s, Int64s]:
        """Return the pairs of remaining rows, of the left and the right, whose successors do not meet."""
        left, right = self._sides
        changed = (at >= left.same.num_rows) | (other >= right.same.num_rows)
        at, other = at[changed], other[changed]
        still = self._holds(LEFT, left.now, left.successors[at], right.now, right.successors[other])
        return at[~still], other[~still]

    def _with_or_without(self, side: int, *, partner: bool = False) -> Iterator[pa.Table]:
        """Yield the changes of a side's rows without a partner, or of those with one, beside those of pairs.

        The row's version orders these results, then the batch. When a row moves, the tombstone at its former place has
        the least number of the row's new version.
        """
        one, two = self._sides[side], self._sides[1 - side]
        given = self._meets(side, one.new, two.now) == partner
        was = np.zeros(one.new.num_rows, dtype=np.bool_)
        was[~one.fresh] = self._meets(side, one.replaced, two.before) == partner
        yield from self._one_alone(side, one.new.filter(pa.array(given)), self._turn)
        yield from self._one_alone(side, one.new.filter(pa.array(was & ~given)), self._turn, deleted=True)
        at, cause = self._causes(side, one.same, two.leaving)
        lost = ~self._meets(side, one.same, two.now)[at]
        rows, cause = one.same.take(pa.array(at[lost])), cause.filter(pa.array(lost))
        yield from self._one_alone(side, rows, self._turn, cause, deleted=partner)
        at, cause = self._causes(side, one.same, two.new)
        found = ~self._meets(side, one.same, two.before)[at]
        rows, cause = one.same.take(pa.array(at[found])), cause.filter(pa.array(found))
        yield from self._one_alone(side, rows, self._turn, cause, deleted=not partner)
        left = one.removed.filter(pa.array(self._meets(side, one.removed, two.before) == partner))
        yield from self._one_alone(side, left, 0, deleted=True)
        if not partner:
            yield from self._one_alone(side, one.keyless, self._turn)
            yield from self._one_alone(side, one.keyless_left, 0, deleted=True)

    def _one_alone(
        self, side: int, rows: pa.Table, turn: int, cause: pa.Table | None = None, *, deleted: bool = False
    ) -> Iterator[pa.Table]:
        if rows.num_rows:
            number = (_numbers(rows, VERSION) << _OF_ONE) + turn
            make = self._results.tombstones if deleted else self._results.given
            yield make(_both(side, rows, None), number, cause)

    def _by_on(self) -> Iterator[pa.Table]:
        """Yield the changes where each side has at most one row for each value of `on`, which stays in its shard.

        Each value then has one result, and the number of the batch orders its changes.
        """
        left, right = self._sides
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(LEFT, one, two)
            yield from self._in_turn((one.take(pa.array(at)), two.take(pa.array(other))))
        for side in (LEFT, RIGHT):
            one, two = self._sides[side], self._sides[1 - side]
            alone = one.new.filter(pa.array(~self._meets(side, one.new, two.now)))
            yield from self._in_turn(_both(side, alone, None))
            at, cause = self._causes(side, one.same, two.removed)
            yield from self._in_turn(_both(side, one.same.take(pa.array(at)), None), cause)
            over = ~self._meets(side, one.removed, two.now)
            if side == RIGHT:
                over &= ~self._meets(side, one.removed, two.removed)
            yield from self._in_turn(_both(side, one.removed.filter(pa.array(over)), None), deleted=True)

    def _in_turn(self, rows: Rows, cause: pa.Table | None = None, *, deleted: bool = False) -> Iterator[pa.Table]:
        n = next(table.num_rows for table in rows if table is not None)
        if n:
            make = self._results.tombstones if deleted else self._results.given
            yield make(rows, np.full(n, self._turn, dtype=np.int64), cause)

    def _to_one(self, side: int) -> Iterator[pa.Table]:
        """Yield the changes where a row of one side has one partner at most.

        Results have this side's key, so its version orders them, then the other side's. A move needs no tombstone at
        the former place, since the result at the new place has a greater number.
        """
        one, two = self._sides[side], self._sides[1 - side]
        met = np.zeros(one.same.num_rows, dtype=np.bool_)
        at, other = self._matched(side, one.same, two.new)
        met[at] = True
        yield from self._with_partner(side, one.same, at, two.new, other)
        at, other = self._matched(side, one.same, two.leaving)
        lost = ~met[at]
        gone = two.leaving.take(pa.array(other[lost]))
        yield from self._without(side, one.same.take(pa.array(at[lost])), _numbers(gone, VERSION), gone)
        at, other = self._matched(side, one.new, two.now)
        yield from self._with_partner(side, one.new, at, two.now, other)
        alone = np.ones(one.new.num_rows, dtype=np.bool_)
        alone[at] = False
        for rows in (one.new.filter(pa.array(alone)), one.keyless):
            yield from self._without(side, rows, np.zeros(rows.num_rows, dtype=np.int64))
        if one.gone.num_rows:
            number = _numbers(one.gone, VERSION) << _OF_ONE
            yield self._results.tombstones(_both(side, one.gone, None), number)

    def _with_partner(self, side: int, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> Iterator[pa.Table]:
        if len(at):
            number = (_versions(one, at) << _OF_ONE) + _versions(two, other)
            yield self._results.given(_both(side, one.take(pa.array(at)), two.take(pa.array(other))), number)

    def _without(self, side: int, rows: pa.Table, version: Int64s, cause: pa.Table | None = None) -> Iterator[pa.Table]:
        """Yield a side's rows without a partner, with nulls or as tombstones; `cause` has the partners that left."""
        if rows.num_rows:
            number = (_numbers(rows, VERSION) << _OF_ONE) + version
            make = self._results.given if self._plan.gives_alone(side) else self._results.tombstones
            yield make(_both(side, rows, None), number, cause)

    def _meets(self, side: int, one: pa.Table, two: pa.Table) -> Mask:
        """Return which rows of a side meet a row of the other side."""
        found = np.zeros(one.num_rows, dtype=np.bool_)
        found[self._matched(side, one, two)[0]] = True
        return found

    def _causes(self, side: int, one: pa.Table, two: pa.Table) -> tuple[Int64s, pa.Table]:
        """Return the positions of a side's rows that meet others, each once, and their latest partners."""
        at, other = self._matched(side, one, two)
        order = np.lexsort((_numbers(two, ARRIVAL)[other], at))
        at, other = at[order], other[order]
        last = np.ones(len(at), dtype=np.bool_)
        last[:-1] = at[1:] != at[:-1]
        return at[last], two.take(pa.array(other[last]))

    def _matched(self, side: int, one: pa.Table, two: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the positions of rows of a side, and of others, that meet."""
        if not one.num_rows or not two.num_rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        plan, band = self._plan, self._plan.band
        probes, numbers = one.column(NUMBER).to_numpy(), two.column(NUMBER).to_numpy()
        if band is None:
            order = np.argsort(numbers, kind="stable")
            other, counts = ranges(numbers[order], probes, probes)
            at, other = np.repeat(np.arange(len(probes)), counts), order[other]
        else:
            times = _times(two, plan.sides[1 - side])
            order = np.lexsort((times, numbers))
            rows = SortedRows(numbers[order], times[order], two)
            found = [*matches(probes, *band.partners(side, _times(one, plan.sides[side])), rows)]
            none = [np.empty(0, dtype=np.int64)]
            at = np.concatenate(none + [each for each, _ in found])
            other = order[np.concatenate(none + [each for _, each in found])]
        if not plan.exact:
            same = equal_keys(one, plan.sides[side].on, at, two, plan.sides[1 - side].on, other)
            mask = same.to_numpy(zero_copy_only=False)
            at, other = at[mask], other[mask]
        if self._condition is not None:
            mask = self._fulfil(side, one, at, two, other)
            at, other = at[mask], other[mask]
        return at, other

    def _holds(self, side: int, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> Mask:
        """Return which pairs of rows with equal values of `on` meet."""
        plan, mask = self._plan, np.ones(len(at), dtype=np.bool_)
        if plan.band is not None:
            least, greatest = plan.band.partners(side, _times(one, plan.sides[side])[at])
            times = _times(two, plan.sides[1 - side])[other]
            mask = (least <= times) & (times <= greatest)
        if self._condition is not None:
            mask[mask] = self._fulfil(side, one, at[mask], two, other[mask])
        return mask

    def _fulfil(self, side: int, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> Mask:
        assert self._condition is not None
        left, right = ((one, at), (two, other)) if side == LEFT else ((two, other), (one, at))
        return self._condition(*left, *right).to_numpy(zero_copy_only=False)


def _times(rows: pa.Table, side: LatestSide) -> Int64s:
    return ordered(rows.column(str(side.event_time))).astype(np.int64, copy=False)


def _both(side: int, one: pa.Table, two: pa.Table | None) -> Rows:
    """Return rows of a side and of the other one in the order left, right."""
    return (one, two) if side == LEFT else (two, one)


def _versions(rows: pa.Table, at: Int64s) -> Int64s:
    return _numbers(rows, VERSION)[at]


_BEGAN, _SAME = "the state of the join in this checkpoint was written", "inputs, keys and number of shards"


class VersionShard(Shard[VersionPlan, LatestJoinReport]):
    """A shard of one side's keys, ahead of the join."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport

    def __init__(self, number: int, plan: VersionPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        self._versions = LatestVersions(self._store, "keys", plan.side, self._head.get("keys", {}), files)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the newest rows of keys that have new ones, and tombstones at the keys' former places."""
        versions, side = self._versions, self._plan.side
        rows, punctuation = rows_in(given.left, side.schema)
        self._advance_clock([rows])
        versions.hear(punctuation)
        changes = versions.changes(rows)
        if self._plan.limit is not None:
            self._plan.limit.check(self._number, side.on, lambda: versions.bytes, versions.compact)
        counts = {"left_rows": rows.num_rows, "results": changes.num_rows}
        return changes, {**counts, "left_kept": versions.rows, "left_expired": versions.expired}

    def saved(self) -> dict[str, Any]:
        return {"keys": self._versions.to_json()}


class LatestJoinShard(Shard[LatestJoinPlan, LatestJoinReport]):
    """A shard of a join of newest rows."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport
    counted = ("left_rows", "right_rows", "results", "retracted")

    def __init__(self, number: int, plan: LatestJoinPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        self._turn = int(head.get("turn", 0))
        self._condition = pair_condition(plan)
        self._forgetting = [
            DeletionRetention(side, head.get(name, {})) for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        self._expiry = [
            Expiry(self._store, name, side.ttl if side.stays else None, head.get(name, {}).get("expiry", {}))
            for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        self._runs = [
            KeyRuns(
                self._store, name, kept_schema(side), head.get(name, {}), files,
                each.forget if side.stays else None,
            )
            for name, side, each in zip(SIDES, plan.sides, self._forgetting, strict=True)
        ]  # fmt: skip
        if head:
            check_columns(plan.sides, head["columns"], [each.rows for each in self._runs])

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return pairs that are new or have changed, and tombstones of those that are gone."""
        sides: list[NewestSide] = []
        for at, frames in ((LEFT, given.left), (RIGHT, given.right)):
            side = self._plan.sides[at]
            rows, punctuation = rows_in(frames, side.schema if side.stays else side.versioned)
            self._counts[f"{SIDES[at]}_rows"] += rows.num_rows
            self._advance_clock([rows])
            self._forgetting[at].hear(punctuation)
            by_on = not self._plan.selects
            sides.append(NewestSide(side, self._runs[at], rows, self._forgetting[at], self._expiry[at], by_on=by_on))
        touched = np.concatenate([each.numbers for each in sides])
        for each in sides:
            each.read(touched)
        self._turn += 1
        results = LatestResults(self._plan, self._number)
        changes = LatestChanges(self._plan, results, sides[LEFT], sides[RIGHT], self._turn, self._condition)
        tables = changes.tables()
        result = pa.concat_tables([self._plan.schema.empty_table(), *tables])
        for each in sides:
            each.keep()
        if self._plan.limit is not None:
            self._plan.limit.check(self._number, self._plan.left.on, self._bytes, self._compact)
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(pc.sum(deleted_mask(result)).as_py() or 0)
        return result, {
            "left_kept": self._runs[LEFT].rows,
            "right_kept": self._runs[RIGHT].rows,
            "left_expired": self._expiry[LEFT].rows,
            "right_expired": self._expiry[RIGHT].rows,
        }

    def _bytes(self) -> int:
        return sum(each.bytes for each in (*self._runs, *self._expiry))

    def _compact(self) -> None:
        for runs in self._runs:
            runs.compact()

    def saved(self) -> dict[str, Any]:
        sides = zip(SIDES, self._runs, self._forgetting, self._expiry, strict=True)
        return {
            "turn": self._turn,
            "columns": columns_to_json(self._plan.sides),
            **{
                name: {**runs.to_json(), **forgetting.to_json(), "expiry": expiry.to_json()}
                for name, runs, forgetting, expiry in sides
            },
        }
