"""Joins of two relations: pairs of rows, and rows with or without a partner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import LOWEST, Int64s
from ..state.key_runs import PlaceRanges, UInt64s, is_among
from .arrangement import OperatorState
from .operator import Evaluable, Operator, needed, with_columns
from .plan.bounds import Partners
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
    int64s,
    key_numbers,
    numbered,
)

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]

_MATCHES = "__matches"
_LEFT, _RIGHT = "__left", "__right"


@dataclass(frozen=True)
class _Side:
    """The rows of one input that a step concerns: those that change, and those of the same keys.

    ``events`` has the weights by row (column ``__row``) and time; rows that were there before have one at OLD.
    ``old`` has the positions of these, in the order in which they were read.
    """

    rows: pl.DataFrame
    keys: pl.DataFrame
    places: UInt64s
    events: pl.DataFrame
    old: Int64s
    is_old: npt.NDArray[np.bool_]
    changes: npt.NDArray[np.bool_]
    matches: Int64s


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
    ) -> None:
        self.columns = schema.names
        self.kept = kept
        self._needed = needed
        self.keys = [(f"__key{number}", key) for number, key in enumerate(keys)]
        self.counts = counts
        more = [pa.field(name, pa.int64()) for name in ((WEIGHT, _MATCHES) if counts else (WEIGHT,))]
        self._names = [name for name, _ in self.keys]
        self.arrangement = state.arrangement(part, pa.schema([*schema, *more]), schema.names)
        self._values = state.values
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
        if not self.kept or self._values.get(self._nulls) or self._values.get(self._dropped):
            return None
        return self.arrangement.read_all().select(*self.columns, WEIGHT)

    def split(self, changes: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, Int64s]:
        """Return the changes that may have partners, those that have a null in their key, and the keys' numbers."""
        if not self.keys or changes.height == 0:
            return changes, changes.clear(), np.zeros(changes.height, dtype=np.int64)
        keys = with_columns(changes, self.keys).select(self._names)
        null = keys.select(pl.any_horizontal(pl.all().is_null()).alias("null")).get_column("null")
        numbers = key_numbers(keys, self._names)
        return changes.filter(~null), changes.filter(null), numbers[~null.to_numpy()]

    def read(self, changes: pl.DataFrame, own: Int64s, other: Int64s) -> _Side:
        """Return the rows that a step concerns.

        Parameters
        ----------
        changes
            Of this input.
        own : int64 array of length changes
            The numbers of their keys.
        other : int64 array
            The numbers of the keys that change in the other input.
        """
        own_places = self.arrangement.places_of(changes, own)
        found = self.arrangement.read_between(PlaceRanges.of_keys(other).joined(own_places))
        places = self.arrangement.places
        if self.counts:
            changes = changes.with_columns(pl.lit(0, pl.Int64).alias(_MATCHES))
        # Rows at other places are distinct and equal to none that changes.
        same = is_among(places, np.sort(own_places))
        apart = len(same) - int(same.sum())
        old = found.with_columns(pl.lit(OLD).alias(TIME))
        changing = pl.concat([old.filter(pl.Series(same)), changes.select(old.columns)])
        together = pl.concat([old.filter(pl.Series(~same)), changing])
        ids, first = numbered(changing, self.columns)
        ids = np.concatenate([np.arange(apart), ids + apart])
        first = np.concatenate([np.arange(apart), first + apart])
        rows = together.select(self.columns)[first]
        at = np.empty(found.height, dtype=np.int64)
        at[~same], at[same] = ids[:apart], ids[apart : found.height]
        is_old, changed = np.zeros(len(first), dtype=np.bool_), np.zeros(len(first), dtype=np.bool_)
        is_old[at] = True
        changed[ids[found.height :]] = True
        matches = np.zeros(len(first), dtype=np.int64)
        if self.counts:
            matches[at] = int64s(found, _MATCHES)
        return _Side(
            rows,
            with_columns(rows, self.keys).select(self._names),
            np.concatenate([places[~same], places[same], own_places])[first],
            together.select(pl.Series("__row", ids), TIME, WEIGHT),
            at,
            is_old,
            changed,
            matches,
        )


class JoinOperator(Operator):
    """A join of two relations.

    Pairs come from changes on either side: changes of the left with what the right has, what the left had with changes
    of the right, and changes with changes; at the later of the two times, with the product of the weights. A row has a
    partner while the weights of its partners add up to more than 0.

    State: the rows of both inputs by the key, those of large keys in buckets; those of an outer side, and of the left
    side of semi and anti joins, with the number of their partners. Of an input whose other side is static, nothing; of
    one of which rows have partners for some time only, those of about twice that time. Rows with a null in their key
    have no partner and are not kept, only whether there has been one on a side whose rows come without a partner too.

    Parameters
    ----------
    schema, left, right : pyarrow.Schema
        Of the result and of the inputs.
    how : str
    on : sequence of (Computed, Computed)
        Over the left, and over the right; equal keys match, null matches nothing.
    condition : Computed or None
        Over the columns of both.
    state : State
    static : (bool, bool)
        Whether the left, and the right, change in the first step only.
    needed : (Partners or None, Partners or None)
        How long rows of the left, and of the right, are needed after their times, if that is bounded; the column is in
        microseconds. See :func:`~upstream.operators.relations.plan.bounds.needed_of`.

    Raises
    ------
    SchemaError
        Two keys that are compared have different types.
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
        static: tuple[bool, bool] = (False, False),
        needed: tuple[Partners | None, Partners | None] = (None, None),
    ) -> None:
        super().__init__(schema)
        for one, two in on:
            if one.type != two.type:
                raise SchemaError(
                    f"a join compares {one.type} with {two.type}",
                    expected="keys of one type",
                    hint="cast one of them",
                )
        self._how = how
        self._condition = condition
        counts = how not in {"inner", "right"}, how in {"right", "full"}
        self._left = _Input(left, [one for one, _ in on], counts[0], not static[1], needed[0], state, "left")
        self._right = _Input(right, [two for _, two in on], counts[1], not static[0], needed[1], state, "right")

    def acts(self, span: Span) -> bool:
        return self._left.due(span.until) or self._right.due(span.until)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        found = self._joined(inputs, span.until) if any(each.height for each in inputs) else self.nothing
        self._left.sweep(span.until)
        self._right.sweep(span.until)
        return found

    def _joined(self, inputs: Sequence[pl.DataFrame], until: int) -> pl.DataFrame:
        left_changes, left_null, left_touched = self._left.split(inputs[0])
        right_changes, right_null, right_touched = self._right.split(inputs[1])
        left = self._left.read(left_changes, left_touched, right_touched)
        right = self._right.read(right_changes, right_touched, left_touched)
        pairs = self._pairs(left, right)
        found: list[pl.DataFrame] = []
        if self._how not in {"semi", "anti"}:
            found.append(self._matched(left, right, pairs))
        if self._how != "right":
            found += self._alone(self._left, left, right, pairs, left_null, _LEFT, _RIGHT, until)
        else:
            self._keep(self._left, left, _weights_after(left), left.matches, until)
        if self._how in {"right", "full"}:
            found += self._alone(self._right, right, left, pairs, right_null, _RIGHT, _LEFT, until)
        else:
            self._keep(self._right, right, _weights_after(right), right.matches, until)
        return pl.concat(found) if found else self.nothing

    def kept(self) -> Sequence[pl.DataFrame | None]:
        return [self._left.contents(), self._right.contents()]

    def _pairs(self, left: _Side, right: _Side) -> pl.DataFrame:
        """Return the rows that match, of which at least one changes, by their positions."""
        one = pl.DataFrame([*left.keys.get_columns(), pl.Series(_LEFT, np.arange(left.rows.height))])
        two = pl.DataFrame([*right.keys.get_columns(), pl.Series(_RIGHT, np.arange(right.rows.height))])
        names = left.keys.columns
        fresh = pl.Series(left.changes)
        sides = [(one.filter(fresh), two), (one.filter(~fresh), two.filter(pl.Series(right.changes)))]
        if not names and self._condition is None and self._how not in {"semi", "anti"}:
            check_growth(sum(float(some.height) * others.height for some, others in sides), one.height + two.height)
        pairs = pl.concat([_met(some, others, names) for some, others in sides])
        if self._condition is None or pairs.height == 0:
            return pairs
        columns: list[pl.Series] = []
        for side, name in ((left, _LEFT), (right, _RIGHT)):
            read = needed(side.rows, self._condition)
            columns += side.rows.select(read)[int64s(pairs, name)].get_columns() if read else []
        frame = pl.DataFrame(columns) if columns else pairs
        return pairs.filter(self._condition.series(frame, "__condition"))

    def _matched(self, left: _Side, right: _Side, pairs: pl.DataFrame) -> pl.DataFrame:
        check_growth(pairs.height, left.rows.height + right.rows.height)
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

    def _alone(
        self,
        kept: _Input,
        side: _Side,
        other: _Side,
        pairs: pl.DataFrame,
        null: pl.DataFrame,
        name: str,
        other_name: str,
        until: int,
    ) -> list[pl.DataFrame]:
        """Keep the rows of a side with their partners counted, and return those that come or leave by that count."""
        if not kept.counts:
            self._keep(kept, side, _weights_after(side), side.matches, until)
            return []
        met = pairs.join(other.events.rename({"__row": other_name}), on=other_name, maintain_order="left_right")
        ids, times, weights = int64s(met, name), int64s(met, TIME), int64s(met, WEIGHT)
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
        last = steps.lasts
        self._keep(kept, side, weight[last], matches[last], until)
        has = matches > 0
        there = differences(steps.ids, weight * (has if self._how == "semi" else ~has))
        changed = np.flatnonzero((steps.times != OLD) & (there != 0))
        alone = delta_frame(side.rows[steps.ids[changed]], steps.times[changed], there[changed])
        if self._how != "semi":
            alone = pl.concat([alone, null])
            kept.passed(null)
        missing = [name for name in self.dtypes if name not in alone.columns]
        alone = alone.with_columns(pl.lit(None, self.dtypes[name]).alias(name) for name in missing)
        return [alone.select(self.nothing.columns)]

    def _keep(self, kept: _Input, side: _Side, weights: Int64s, matches: Int64s, until: int) -> None:
        if not kept.kept:
            return
        differs = side.changes | (matches != side.matches)
        there = np.flatnonzero(differs & (weights != 0))
        rows = side.rows[there].with_columns(pl.Series(WEIGHT, weights[there]))
        if kept.counts:
            rows = rows.with_columns(pl.Series(_MATCHES, matches[there]))
        if differs.any():
            kept.write(rows, side.places[there], differs[side.old], until)


class NotIn(Operator):
    """``x NOT IN (SELECT y ...)``, where null makes a comparison neither true nor false.

    A left row stays if no right row that the correlation admits is equal to it, or null, or, when x is null, there at
    all: three anti joins.

    Parameters
    ----------
    schema, right : pyarrow.Schema
    compared : (Computed, Computed)
        x and y.
    on, condition
        The correlation, as for :class:`JoinOperator`.
    state : State
    static : (bool, bool)
        Whether the left, and the right, change in the first step only.
    """

    def __init__(
        self,
        schema: pa.Schema,
        right: pa.Schema,
        compared: tuple[Evaluable, Evaluable],
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


def _met(left: pl.DataFrame, right: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    if names and left.height == right.height == 1:  # of one row each, Polars does not take NaN for NaN
        equal = all((left[name] == right[name]).fill_null(value=False).item() for name in names)
        return left.select(_LEFT).hstack(right.select(_RIGHT)).head(int(equal))
    if names:
        return left.join(right, on=names, how="inner", maintain_order="left_right").select(_LEFT, _RIGHT)
    return left.join(right, how="cross", maintain_order="left_right").select(_LEFT, _RIGHT)


def _weights_after(side: _Side) -> Int64s:
    total = np.zeros(side.rows.height, dtype=np.int64)
    np.add.at(total, int64s(side.events, "__row"), int64s(side.events, WEIGHT))
    return total
