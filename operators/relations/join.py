"""Joins of two relations: pairs of rows, and rows with or without a partner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...conf.errors import QueryError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..state.key_runs import PlaceRanges, UInt64s, is_among
from .arrangement import OperatorState
from .multiplicities import KeyedRows
from .newest import NewestByArrival, NewestWindow
from .operator import Evaluable, Operator, RowOperator, check_keys, needed
from .plan.periods import Partners
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Span,
    check_growth,
    consolidated,
    cumulated,
    delta_frame,
    differences,
    expanded,
    int64s,
    key_numbers,
    numbered,
    places_among,
    width_of,
)

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]

_MATCHES = "__matches"
_LEFT, _RIGHT = "__left", "__right"


@dataclass(frozen=True)
class JoinRows:
    """The distinct rows of one input that a step concerns: those that change, and those of the same keys."""

    rows: pl.DataFrame
    keys: pl.DataFrame
    places: UInt64s
    old: Int64s  # The positions of the rows that were there, in the order in which they were read.
    is_old: npt.NDArray[np.bool_]
    changed: Int64s  # The positions of the changes' rows.
    times: Int64s  # Of the changes.
    weights: Int64s  # Of the changes.
    before: Int64s  # By row: its weight before the step.
    matches: Int64s  # By row: the weight of its partners before the step.

    @cached_property
    def after(self) -> Int64s:
        """Each row's weight after the step."""
        after = self.before.copy()
        np.add.at(after, self.changed, self.weights)
        return after

    @cached_property
    def changes(self) -> npt.NDArray[np.bool_]:
        """The mask of the rows that change."""
        mask = np.zeros(self.rows.height, dtype=np.bool_)
        mask[self.changed] = True
        return mask

    def lives(self, *, net: bool) -> tuple[Int64s, Int64s]:
        """Return from when, and until when, each row is there at most. Net changes are all at one time, 1."""
        if net:
            return np.where(self.before != 0, 0, 1), np.where(self.after != 0, 2, 1)
        begins, ends = np.where(self.before != 0, OLD, HIGHEST), np.where(self.after != 0, HIGHEST, OLD)
        np.minimum.at(begins, self.changed, self.times)
        np.maximum.at(ends, self.changed, self.times)
        return begins, ends

    @cached_property
    def events(self) -> pl.DataFrame:
        """The weights by row and time; rows that were there before have one at OLD."""
        rows = pl.Series("__row", np.concatenate([self.old, self.changed]))
        times = np.concatenate([np.full(len(self.old), OLD), self.times])
        return delta_frame(rows.to_frame(), times, np.concatenate([self.before[self.old], self.weights]))


_Alone = tuple[pl.DataFrame, Int64s]
"""Rows of a side that come or leave by the number of their partners, and the number of each row of the side."""


class _Input:
    """One input of a join, and what is kept of it: nothing if the other input never changes after the first step."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[Evaluable],
        counts: bool,
        kept: bool,
        needed: Partners | None,
        state: OperatorState,
        part: str,
        within: Sequence[str] | None,
    ) -> None:
        self.columns = schema.names
        self.kept = kept
        self._needed = needed
        self.keys = [(f"__key{number}", key) for number, key in enumerate(keys)]
        self.counts = counts
        more = [pa.field(name, pa.int64()) for name in ((WEIGHT, _MATCHES) if counts else (WEIGHT,))]
        self._names = [name for name, _ in self.keys]
        self.arrangement = state.arrangement(part, pa.schema([*schema, *more]), within or schema.names)
        self._values = state.values
        self.reader: _KeptRows | None = None
        """Reads the rows of keys after the step from the operator that keeps them, so that nothing is kept here."""
        self._nulls, self._dropped, self._swept = (f"{each} of {part}" for each in ("nulls", "dropped", "swept"))

    def stays(self, rows: pl.DataFrame, until: int) -> npt.NDArray[np.bool_]:
        """Return which rows are still needed after a step; those that are not have no change of a partner any more."""
        if self._needed is None:
            return np.ones(rows.height, dtype=np.bool_)
        times = rows.get_column(self._needed.column).to_physical().fill_null(LOWEST).to_numpy()
        return times >= until - self._needed.after

    def write(self, rows: pl.DataFrame, places: UInt64s, replaced: npt.NDArray[np.bool_], until: int) -> None:
        """Put rows in place of some of those that were read, without those that are not needed any more."""
        stays = self.stays(rows, until)
        if not stays.all():
            self._values[self._dropped] = True
            rows, places = rows.filter(pl.Series(stays)), places[stays]
        self.arrangement.write_at(rows, places, replaced)

    def due(self, until: int) -> bool:
        """Return whether rows may be there that have not been needed for as long as they were needed."""
        if self._needed is None or self.arrangement.rows == 0:
            return False
        return until - self._values.get(self._swept, LOWEST) > self._needed.after

    def sweep(self, until: int) -> None:
        """Drop the rows that are not needed any more, once in a while: each is then read about twice."""
        if self.due(until):
            self._values[self._swept] = until
            if self.arrangement.keep(lambda rows: self.stays(rows, until)):
                self._values[self._dropped] = True

    def passed(self, null: pl.DataFrame) -> None:
        """Remember that rows passed which the result has and the state has not."""
        if null.height:
            self._values[self._nulls] = True

    def contents(self) -> pl.DataFrame | None:
        """Return all rows that the result follows from, with their weights; None if some are not kept."""
        if not self.kept or self.reader is not None or self._values.get(self._nulls) or self._values.get(self._dropped):
            return None
        return self.arrangement.read_all().select(*self.columns, WEIGHT)

    def split(self, changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, Int64s]:
        """Return the changes that may have partners, those that have a null in their key, and the keys' numbers."""
        if not self.keys or changes.height == 0:
            return changes, changes.clear(), np.zeros(changes.height, dtype=np.int64)
        keys = self._keys_of(changes)
        numbers = key_numbers(keys, self._names)
        if not any(each.null_count() for each in keys.get_columns()):
            return changes, changes.clear(), numbers
        null = keys.select(pl.any_horizontal(pl.all().is_null()).alias("null")).get_column("null")
        return changes.filter(~null), changes.filter(null), numbers[~null.to_numpy()]

    def _keys_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame([key.series(rows, name) for name, key in self.keys])

    def read(self, changes: pl.DataFrame, own: Int64s, other: Int64s) -> JoinRows:
        """Return the rows that a step concerns, given the numbers of the keys that change in both inputs."""
        if self.reader is not None:
            return self._kept_below(changes, own, self.reader.rows_of(other))
        own_places = self.arrangement.places_of(changes, own)
        found = self.arrangement.read_between(PlaceRanges.of_keys(other).joined(own_places))
        places = self.arrangement.places
        # Rows at other places are distinct and equal to none that changes.
        same = is_among(places, np.sort(own_places))
        order = np.concatenate([np.flatnonzero(~same), np.flatnonzero(same)])
        apart = len(same) - int(np.count_nonzero(same))
        together = pl.concat([found[self.columns][order], changes[self.columns]])
        ids, first = numbered(together[apart:], self.columns)
        ids = np.concatenate([np.arange(apart), ids + apart])
        first = np.concatenate([np.arange(apart), first + apart])
        rows = together[first]
        old = np.empty(found.height, dtype=np.int64)
        old[order] = ids[: found.height]
        is_old = np.zeros(len(first), dtype=np.bool_)
        is_old[old] = True
        before, matches = np.zeros((2, len(first)), dtype=np.int64)
        before[old] = int64s(found, WEIGHT)
        if self.counts:
            matches[old] = int64s(found, _MATCHES)
        keys, places = self._keys_of(rows), np.concatenate([places[order], own_places])[first]
        times, weights = int64s(changes, TIME), int64s(changes, WEIGHT)
        return JoinRows(rows, keys, places, old, is_old, ids[found.height :], times, weights, before, matches)

    def _kept_below(self, changes: pl.DataFrame, own: Int64s, there: pl.DataFrame) -> JoinRows:
        """Return the rows that a step concerns, given those after it of the keys that change in the other input.

        The weights of rows of other keys count from 0: only what they change has partners.
        """
        near = np.isin(key_numbers(self._keys_of(there), self._names), own)
        order = np.concatenate([np.flatnonzero(~near), np.flatnonzero(near)])
        apart = len(near) - int(np.count_nonzero(near))
        together = pl.concat([there[self.columns][order], changes[self.columns]])
        ids, first = numbered(together[apart:], self.columns)
        ids, first = np.concatenate([np.arange(apart), ids + apart]), np.concatenate([np.arange(apart), first + apart])
        rows, changed = together[first], ids[len(near) :]
        times, weights = int64s(changes, TIME), int64s(changes, WEIGHT)
        before, none = np.zeros((2, rows.height), dtype=np.int64)
        np.add.at(before, ids[: len(near)], int64s(there, WEIGHT)[order])
        np.add.at(before, changed, -weights)
        before = np.maximum(before, 0)
        # The partners of all rows are read too: they count as if all rows were new.
        old, is_old, places = np.flatnonzero(before), none > 0, none.view(np.uint64)
        return JoinRows(rows, self._keys_of(rows), places, old, is_old, changed, times, weights, before, none)


def counted(how: Kind) -> tuple[bool, bool]:
    """Return for each side of a join whether the partners of its rows are counted."""
    return how not in {"inner", "right"}, how in {"right", "full"}


class JoinOperator(Operator):
    """A join of two relations.

    Pairs come from changes on either side. Changes of the left meet the right's rows, and changes of the right the
    left's earlier rows; changes also meet changes. A pair has the later of the two times, and the product of the
    weights. A row has a partner while the weights of its partners add up to more than 0.

    State: the rows of both inputs by the key, those of large keys in buckets. Rows of an outer side, and of the left
    side of semi and anti joins, have the number of their partners. An input whose other side is static keeps nothing.
    An input whose rows have partners for a limited time keeps those of about twice that time. If an operator below
    keeps the rows by the key of the join, they are read there, and nothing is kept here. Rows with a null in their key
    have no partner and are not kept. A side whose rows also come without a partner keeps whether there has been one.

    ``needed`` bounds how long rows of the left, and of the right, are needed after their times, in microseconds (see
    :func:`~upstream.operators.relations.plan.bounds.needed_of`). ``within`` are the columns that identify a row within
    its key; None for all. Raises SchemaError if keys that are compared have different types.
    """

    def __init__(
        self,
        schema: pa.Schema,
        left: pa.Schema,
        right: pa.Schema,
        how: Kind,
        on: Sequence[tuple[Evaluable, Evaluable]],
        condition: Evaluable | None,
        state: OperatorState,
        static: tuple[bool, bool] = (False, False),  # a side changes in the first step only
        needed: tuple[Partners | None, Partners | None] = (None, None),
        within: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
    ) -> None:
        super().__init__(schema)
        check_keys(on)
        self._how = how
        self._condition = condition
        counts = counted(how)
        one, two = ([each[at] for each in on] for at in (0, 1))
        self._left = _Input(left, one, counts[0], not static[1], needed[0], state, "left", within[0])
        self._right = _Input(right, two, counts[1], not static[0], needed[1], state, "right", within[1])

    def over(self, inputs: Sequence[Operator]) -> None:
        """Read the rows of keys from the operators below that keep them by the key of the join.

        A side whose partners are counted needs all of its own and of theirs, as newest rows by arrival change.
        """
        sides = self._left, self._right
        found = [_reader_of(each, below) if each.kept else None for each, below in zip(sides, inputs, strict=True)]
        newest = all(each is not None and isinstance(each.operator, NewestByArrival) for each in found)
        for each, reader in zip(sides, found, strict=True):
            each.reader = reader if newest or not each.counts else None

    def acts(self, span: Span) -> bool:
        return self._left.due(span.until) or self._right.due(span.until)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        found = self._joined(inputs, span) if any(each.height for each in inputs) else self.nothing
        self._left.sweep(span.until)
        self._right.sweep(span.until)
        return found

    def _joined(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        left_changes, left_null, left_touched = self._left.split(inputs[0])
        right_changes, right_null, right_touched = self._right.split(inputs[1])
        left = self._left.read(left_changes, left_touched, right_touched)
        right = self._right.read(right_changes, right_touched, left_touched)
        pairs = self._pairs(left, right, net=span.net)
        found: list[pl.DataFrame] = []
        if self._how not in {"semi", "anti"}:
            check_growth(pairs.height, left.rows.height + right.rows.height, width_of(left.rows) + width_of(right.rows))
            found.append(self._net(left, right, pairs, span) if span.net else self._matched(left, right, pairs))
        for kept, side, other, null, name, other_name in (
            (self._left, left, right, left_null, _LEFT, _RIGHT),
            (self._right, right, left, right_null, _RIGHT, _LEFT),
        ):
            matches = side.matches
            if kept.counts:
                alone = self._net_alone if span.net else self._alone
                rows, matches = alone(side, other, int64s(pairs, name), int64s(pairs, other_name), span)
                found.append(self._with_nulls(kept, rows, null))
            self._keep(kept, side, matches, span.until)
        return pl.concat(found) if found else self.nothing

    def kept(self) -> Sequence[pl.DataFrame | None]:
        return [self._left.contents(), self._right.contents()]

    def _pairs(self, left: JoinRows, right: JoinRows, *, net: bool) -> pl.DataFrame:
        """Return the rows that match, of which at least one changes, by their positions."""
        if _have_many_pairs(left, right):
            return self._pairs_at_one_time(left, right, net=net)
        one = pl.DataFrame([*left.keys.get_columns(), pl.Series(_LEFT, np.arange(left.rows.height))])
        two = pl.DataFrame([*right.keys.get_columns(), pl.Series(_RIGHT, np.arange(right.rows.height))])
        fresh = pl.Series(left.changes)
        sides = [(one.filter(fresh), two), (one.filter(~fresh), two.filter(pl.Series(right.changes)))]
        joined = [_met(some, others, left.keys.columns) for some, others in sides]
        return self._matching(left, right, pl.concat(joined) if joined[1].height else joined[0])

    def _matching(self, left: JoinRows, right: JoinRows, pairs: pl.DataFrame) -> pl.DataFrame:
        """Return the pairs for which the condition holds."""
        if self._condition is None or pairs.height == 0:
            return pairs
        columns: list[pl.Series] = []
        for side, name in ((left, _LEFT), (right, _RIGHT)):
            read = needed(side.rows, self._condition)
            columns += side.rows.select(read)[int64s(pairs, name)].get_columns() if read else []
        frame = pl.DataFrame(columns) if columns else pairs
        return pairs.filter(self._condition.series(frame, "__condition"))

    def _pairs_at_one_time(self, left: JoinRows, right: JoinRows, *, net: bool) -> pl.DataFrame:
        """Return the matching pairs of equal keys that are there at one time: no others have an effect.

        Of each, one row begins while the other is there, so they are found in the order of the beginnings. A condition
        is evaluated for some pairs at a time.
        """
        size = left.rows.height
        keys = pl.concat([left.keys, right.keys])
        ids = numbered(keys, keys.columns).ids if keys.width else np.zeros(size + right.rows.height, dtype=np.int64)
        (one_begin, one_end), (two_begin, two_end) = left.lives(net=net), right.lives(net=net)
        fresh, changed = left.changes, right.changes
        found: list[tuple[_Ranges, Int64s, Int64s, bool]] = []
        for some, others in (
            (np.flatnonzero(fresh & (one_begin < one_end)), np.flatnonzero(two_begin < two_end)),
            (np.flatnonzero(~fresh & (one_begin < one_end)), np.flatnonzero(changed & (two_begin < two_end))),
        ):
            mine = _Lives(ids[some], one_begin[some], one_end[some])
            theirs = _Lives(ids[size + others], two_begin[others], two_end[others])
            found.append((theirs.beginning_in(mine, with_equal=True), some, others, True))
            found.append((mine.beginning_in(theirs, with_equal=False), others, some, False))
        pairs, rows = sum(each.size for each, *_ in found), size + right.rows.height
        halves = self._how in {"semi", "anti"}
        width = width_of(left.rows) + width_of(right.rows)
        if self._condition is None and not halves:
            check_growth(pairs, rows, width)
        elif pairs > _MOST_PAIRS:
            raise QueryError(
                f"a step compares {pairs:,} pairs of rows",
                expected=f"at most {_MOST_PAIRS:,}",
                hint="compare more columns with =, or take shorter windows",
            )
        kept = [pl.DataFrame(schema={_LEFT: pl.Int64(), _RIGHT: pl.Int64()})]
        count = 0
        for ranges, outer, inner, is_left in found:
            for at, other in ranges.parts(_AT_ONCE):
                one, two = (outer[at], inner[other]) if is_left else (inner[other], outer[at])
                kept.append(self._matching(left, right, pl.DataFrame({_LEFT: one, _RIGHT: two})))
                count += kept[-1].height
                check_growth(count / 4 if halves else count, rows, 0 if halves else width)
        return pl.concat(kept)

    def _matched(self, left: JoinRows, right: JoinRows, pairs: pl.DataFrame) -> pl.DataFrame:
        events = (
            pairs.join(left.events.rename({"__row": _LEFT}), on=_LEFT, maintain_order="left_right")
            .join(right.events.rename({"__row": _RIGHT}), on=_RIGHT, suffix="_right", maintain_order="left_right")
            .select(
                _LEFT,
                _RIGHT,
                pl.max_horizontal(TIME, f"{TIME}_right").alias(TIME),
                (pl.col(WEIGHT) * pl.col(f"{WEIGHT}_right")).alias(WEIGHT),
            )
            .filter(pl.col(TIME) != OLD)
        )
        events = consolidated(events)
        rows = left.rows[int64s(events, _LEFT)].hstack(right.rows[int64s(events, _RIGHT)].get_columns())
        return delta_frame(rows, int64s(events, TIME), int64s(events, WEIGHT))

    def _net(self, left: JoinRows, right: JoinRows, pairs: pl.DataFrame, span: Span) -> pl.DataFrame:
        """Return the pairs that come or leave, if all changes count at the end of the step."""
        one, two = int64s(pairs, _LEFT), int64s(pairs, _RIGHT)
        weights = left.after[one] * right.after[two] - left.before[one] * right.before[two]
        differs = np.flatnonzero(weights)
        rows = left.rows[one[differs]].hstack(right.rows[two[differs]].get_columns())
        return delta_frame(rows, span.until - 1, weights[differs])

    def _net_alone(self, side: JoinRows, other: JoinRows, at: Int64s, partners: Int64s, span: Span) -> _Alone:
        before, after, old = side.matches.copy(), side.matches.copy(), side.is_old[at]
        np.add.at(before, at, np.where(old, 0, other.before[partners]))
        np.add.at(after, at, other.after[partners] - np.where(old, other.before[partners], 0))
        semi = self._how == "semi"
        there = side.after * ((after > 0) == semi) - side.before * ((before > 0) == semi)
        changed = np.flatnonzero(there)
        return delta_frame(side.rows[changed], span.until - 1, there[changed]), after

    def _alone(self, side: JoinRows, other: JoinRows, at: Int64s, partners: Int64s, span: Span) -> _Alone:
        pairs = pl.DataFrame({"__at": at, "__row": partners})
        met = pairs.join(other.events, on="__row", maintain_order="left_right")
        ids, times, weights = int64s(met, "__at"), int64s(met, TIME), int64s(met, WEIGHT)
        counted = (times != OLD) | ~side.is_old[ids]
        ids, times, weights = ids[counted], times[counted], weights[counted]
        rows, events = np.arange(side.rows.height), side.events
        steps = cumulated(
            np.concatenate([int64s(events, "__row"), ids, rows]),
            np.concatenate([int64s(events, TIME), times, np.full(len(rows), OLD)]),
            np.concatenate([int64s(events, WEIGHT), np.zeros(len(ids) + len(rows), dtype=np.int64)]),
            np.concatenate([np.zeros(events.height, dtype=np.int64), weights, side.matches]),
        )
        weight, matches = steps.values
        has = matches > 0
        there = differences(steps.ids, weight * (has if self._how == "semi" else ~has))
        changed = np.flatnonzero((steps.times != OLD) & (there != 0))
        rows = delta_frame(side.rows[steps.ids[changed]], steps.times[changed], there[changed])
        return rows, matches[steps.lasts]

    def _with_nulls(self, kept: _Input, alone: pl.DataFrame, null: pl.DataFrame) -> pl.DataFrame:
        """Return rows without a partner, with those that have a null in their key, as rows of the result."""
        if self._how != "semi":
            alone = pl.concat([alone, null])
            kept.passed(null)
        missing = [name for name in self.dtypes if name not in alone.columns]
        alone = alone.with_columns(pl.lit(None, self.dtypes[name]).alias(name) for name in missing)
        return alone[self.nothing.columns]

    def _keep(self, kept: _Input, side: JoinRows, matches: Int64s, until: int) -> None:
        if not kept.kept or kept.reader is not None:
            return
        differs = side.changes | (matches != side.matches)
        there = np.flatnonzero(differs & (side.after != 0))
        columns = [pl.Series(WEIGHT, side.after[there])]
        if kept.counts:
            columns.append(pl.Series(_MATCHES, matches[there]))
        if differs.any():
            kept.write(side.rows[there].hstack(columns), side.places[there], differs[side.old], until)


class _KeptRows(NamedTuple):
    """Reads the rows of keys after the step from an operator below that keeps them by the key of the join."""

    operator: NewestByArrival | NewestWindow | KeyedRows
    above: list[RowOperator]

    def rows_of(self, numbers: Int64s) -> pl.DataFrame:
        rows = self.operator.rows_of(numbers)
        for each in reversed(self.above):
            rows = each.step([rows], Span.first(HIGHEST))
        return rows


def _reader_of(side: _Input, operator: Operator) -> _KeptRows | None:
    columns, above = [key.column for _, key in side.keys], list[RowOperator]()
    while isinstance(operator, RowOperator):
        above.append(operator)
        columns = [None if each is None else operator.origin(each) for each in columns]
        operator = operator.source
    if not isinstance(operator, NewestByArrival | NewestWindow | KeyedRows) or not columns or columns != operator.key:
        return None
    return _KeptRows(operator, above)


class NotIn(Operator):
    """``x NOT IN (SELECT y ...)``, where null makes a comparison neither true nor false.

    A left row stays if no right row that the correlation admits is equal to it or null. If x is null, it stays if there
    is no such row at all. These are three anti joins. ``on`` and ``condition`` are the correlation.
    """

    def __init__(
        self,
        schema: pa.Schema,
        right: pa.Schema,
        compared: tuple[Evaluable, Evaluable],  # x and y
        on: Sequence[tuple[Evaluable, Evaluable]],
        condition: Evaluable | None,
        state: OperatorState,
        static: tuple[bool, bool] = (False, False),
    ) -> None:
        super().__init__(schema)
        self._compared = compared

        def anti(
            keys: Sequence[tuple[Evaluable, Evaluable]], part: str, never: tuple[bool, bool] = static
        ) -> JoinOperator:
            return JoinOperator(schema, schema, right, "anti", keys, condition, state.within(part), never)

        self._equal = anti([compared, *on], "equal")
        # Its left rows are those that no right row is equal to: they change with the right rows too.
        self._unknown = anti(on, "unknown", (all(static), static[1]))
        self._any = anti(on, "any")

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        left, right = inputs
        if left.height == 0 and right.height == 0:
            return self.nothing
        one, two = self._compared
        is_null = one.series(left, "__x").is_null()
        unknown = right.filter(two.series(right, "__y").is_null())
        differ = self._equal.step([left.filter(~is_null), right], span)
        return pl.concat(
            [self._unknown.step([differ, unknown], span), self._any.step([left.filter(is_null), right], span)]
        )

    def kept(self) -> Sequence[pl.DataFrame | None]:
        known, _ = self._equal.kept()
        null, right = self._any.kept()
        return [None if known is None or null is None else pl.concat([known, null]), right]


class _Lives(NamedTuple):
    """The times for which rows are there."""

    keys: Int64s
    begins: Int64s
    ends: Int64s

    def beginning_in(self, others: _Lives, *, with_equal: bool) -> _Ranges:
        """Return, for each of others, the rows that begin while it is there; with equal beginnings or without."""
        order = np.lexsort((self.begins, self.keys))
        mine = self.keys[order], self.begins[order]
        low = places_among(others.keys, others.begins, *mine, after=not with_equal)
        return _Ranges(order, low, places_among(others.keys, others.ends, *mine))


class _Ranges(NamedTuple):
    order: Int64s  # Rows by place.
    low: Int64s
    high: Int64s

    @property
    def size(self) -> int:
        return int(np.maximum(self.high - self.low, 0).sum())

    def parts(self, most: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the number of each range for each of its rows, and the rows, about ``most`` at a time."""
        ends = np.cumsum(np.maximum(self.high - self.low, 0))
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
            ranges, places = expanded(self.low[first:last], self.high[first:last])
            yield ranges + first, self.order[places]
            first = last


_MANY = 1 << 20
"""So many pairs cost less to make than to avoid."""
_AT_ONCE = 1 << 22
"""Limit of the pairs in memory."""
_MOST_PAIRS = 1 << 28
"""Limit of the pairs that a step compares, since other queries wait for it."""


def _have_many_pairs(left: JoinRows, right: JoinRows) -> bool:
    """Return whether two sides have far more pairs of equal keys than rows."""
    sizes = left.rows.height, right.rows.height
    if left.keys.width == 0 or sizes[0] * sizes[1] <= _MANY:
        return sizes[0] * sizes[1] > _MANY
    found = [np.unique(each.keys.hash_rows().to_numpy(), return_counts=True) for each in (left, right)]
    (one, counts), (two, others) = found
    _, at, other = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    return int((counts[at] * others[other]).sum()) > max(_MANY, 4 * sum(sizes))


def _met(left: pl.DataFrame, right: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    if left.height == 0 or right.height == 0:
        return left.select(_LEFT).clear().hstack(right.select(_RIGHT).clear())
    if any(left[name].dtype.is_float() for name in names):
        # Polars merges columns that it takes for sorted, those of one row too, and then NaN is not NaN.
        ids = numbered(pl.concat([left[names], right[names]]), names).ids
        left, right = left.select(_LEFT, id=ids[: left.height]), right.select(_RIGHT, id=ids[left.height :])
        names = ["id"]
    if names:
        return left.join(right, on=names, how="inner", maintain_order="left_right").select(_LEFT, _RIGHT)
    return left.join(right, how="cross", maintain_order="left_right").select(_LEFT, _RIGHT)
