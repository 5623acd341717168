"""Operators that only count each row: DISTINCT, UNION, EXCEPT, INTERSECT, numbered copies, and rows kept by a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ..state.key_runs import PlaceRanges
from .arrangement import OperatorState
from .operator import Operator
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Span,
    Steps,
    check_copies,
    cumulated,
    delta_frame,
    differences,
    dtypes_of,
    empty_delta,
    expanded,
    int64s,
    key_numbers,
    numbered,
)

Rule = Callable[[Sequence[Int64s]], Int64s]

RULES: dict[str, Rule] = {
    "distinct": lambda counts: (np.sum(counts, axis=0) > 0).astype(np.int64),
    "except": lambda counts: ((counts[0] > 0) & (counts[1] <= 0)).astype(np.int64),
    "except all": lambda counts: np.maximum(counts[0] - counts[1], 0),
    "intersect": lambda counts: ((counts[0] > 0) & (counts[1] > 0)).astype(np.int64),
    "intersect all": lambda counts: np.maximum(np.minimum(counts[0], counts[1]), 0),
}
"""Each maps a row's counts in the inputs to its count in the result; zero counts must give zero."""


class Multiplicities(Operator):
    """Rows as many times as one of :data:`RULES` says. State: each distinct row with its weight in each input."""

    def __init__(self, schema: pa.Schema, inputs: int, rule: Rule, state: OperatorState) -> None:
        super().__init__(schema)
        self._rule = rule
        self._weights = [f"__weight{number}" for number in range(inputs)]
        kept = pa.schema([*schema, *(pa.field(name, pa.int64()) for name in self._weights)])
        self._kept_dtypes = dtypes_of(kept)
        self._kept = state.arrangement("rows", kept)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        if not any(each.height for each in inputs):
            return self.nothing
        distinct, steps = self._counted(inputs)
        more = differences(steps.ids, self._rule(steps.values))
        changed = np.flatnonzero((steps.times != OLD) & (more != 0))
        return delta_frame(distinct[steps.ids[changed]], steps.times[changed], more[changed])

    def kept(self) -> Sequence[pl.DataFrame | None]:
        rows = self._kept.read_all()
        weights = [pl.col(name).alias(WEIGHT) for name in self._weights]
        return [rows.select(*self.dtypes, weight).filter(pl.col(WEIGHT) != 0) for weight in weights]

    def _counted(self, inputs: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, Steps]:
        """Add the changes to the state; return the distinct rows, and the count of each in each input."""
        columns = list(self.dtypes)
        changes = pl.concat([self._placed(each, number) for number, each in enumerate(inputs)])
        numbers = key_numbers(changes, columns)
        old = self._kept.read(numbers).with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([old, changes.select(old.columns)])
        rows = numbered(together, columns)
        steps = cumulated(rows.ids, int64s(together, TIME), *(int64s(together, name) for name in self._weights))
        distinct = together.select(columns)[rows.first]
        last = steps.lasts
        kept = distinct.with_columns(
            pl.Series(name, values[last]) for name, values in zip(self._weights, steps.values, strict=True)
        ).filter(pl.any_horizontal(pl.col(name) != 0 for name in self._weights))
        self._kept.write(kept, key_numbers(kept, columns))
        return distinct, steps

    def _placed(self, changes: pl.DataFrame, number: int) -> pl.DataFrame:
        names = [*self.dtypes, TIME, WEIGHT]
        changes = changes.rename(dict(zip(changes.columns, names, strict=True)))
        return changes.select(
            *(pl.col(name).cast(dtype) for name, dtype in self.dtypes.items()),
            TIME,
            *(
                (pl.col(WEIGHT) if each == number else pl.lit(0, pl.Int64)).alias(name)
                for each, name in enumerate(self._weights)
            ),
        )


class NumberedCopies(Multiplicities):
    """Each copy of a row, numbered from 0 in a last column. State: each distinct row with its weight."""

    def __init__(self, source: pa.Schema, name: str, state: OperatorState) -> None:
        super().__init__(source, 1, lambda counts: np.maximum(counts[0], 0), state)
        self._name = name
        self.schema = source.append(pa.field(name, pa.int64()))
        self.nothing = empty_delta(self.schema)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        if not inputs[0].height:
            return self.nothing
        rows, steps = self._counted(inputs)
        copies = self._rule(steps.values)
        more = differences(steps.ids, copies)
        more[steps.times == OLD] = 0
        check_copies(np.abs(more))
        which, numbers = expanded(np.minimum(copies - more, copies), np.maximum(copies - more, copies))
        numbered_rows = rows[steps.ids[which]].with_columns(pl.Series(self._name, numbers, dtype=pl.Int64))
        return delta_frame(numbered_rows, steps.times[which], np.sign(more[which]))


class KeyedRows(Operator):
    """The rows of a relation by some columns, for all joins that compare these.

    State: each distinct row with its weight. Rows with a null in their key have no partner and are not kept.
    ``within`` are the columns that identify a row within its key; None for all.
    """

    def __init__(
        self, schema: pa.Schema, key: Sequence[str], state: OperatorState, within: Sequence[str] | None = None
    ) -> None:
        super().__init__(schema)
        self.key = list(key)
        self._kept = state.arrangement("rows", schema.append(pa.field(WEIGHT, pa.int64())), within or schema.names)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        rows = changes.drop_nulls(self.key)
        if rows.height:
            places = self._kept.places_of(rows, key_numbers(rows, self.key))
            old = self._kept.read_between(PlaceRanges(places, places))
            together, places = old.vstack(rows.select(old.columns)), np.concatenate([self._kept.places, places])
            ids, first = numbered(together, list(self.dtypes))
            weights = np.zeros(len(first), dtype=np.int64)
            np.add.at(weights, ids, int64s(together, WEIGHT))
            there = np.flatnonzero(weights)
            first = first[there]
            kept = together[first].with_columns(pl.Series(WEIGHT, weights[there]))
            self._kept.write_at(kept, places[first])
        return changes

    def rows_of(self, numbers: Int64s) -> pl.DataFrame:
        """Return the rows of the keys with some numbers after the step, as a delta."""
        return self._delta(self._kept.read(numbers))

    def contents(self) -> pl.DataFrame:
        return self._delta(self._kept.read_all())

    def _delta(self, rows: pl.DataFrame) -> pl.DataFrame:
        return delta_frame(rows.select(*self.dtypes), OLD, int64s(rows, WEIGHT))
