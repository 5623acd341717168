"""Operators that process each row alone, without state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from .operator import Evaluable, Operator, RowOperator
from .plan.properties import Clock
from .zsets import BEGINNING, TIME, WEIGHT, Span, check_copies, columns_of, conformed, consolidated, expanded, width_of


class ConstantRowOperator(Operator):
    """One row of constants, from the first step on."""

    def __init__(self, schema: pa.Schema, columns: Sequence[tuple[str, Evaluable]]) -> None:
        super().__init__(schema)
        self._columns = columns

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        return self.contents().with_columns(pl.lit(span.start, pl.Int64).alias(TIME)).select(self.nothing.columns)

    def contents(self) -> pl.DataFrame:
        one = pl.DataFrame({WEIGHT: [1]})
        return one.hstack([each.series(one, name) for name, each in self._columns])

    def complete_from(self, since: int) -> int | None:
        return BEGINNING


class FilterOperator(RowOperator):
    """The rows for which a condition is true: neither false nor null."""

    def __init__(self, schema: pa.Schema, condition: Evaluable) -> None:
        super().__init__(schema)
        self._condition = condition

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        return rows.filter(self._condition.series(rows, "__condition")) if rows.height else self.nothing


class ProjectOperator(RowOperator):
    """Columns computed from each row. A row that is replaced by one with equal columns is not a change."""

    def __init__(self, columns: Sequence[tuple[str, Evaluable]]) -> None:
        super().__init__(pa.schema([pa.field(name, each.type) for name, each in columns]))
        self._columns = columns
        self._kept = frozenset(each.column for _, each in columns if each.column is not None)

    def origin(self, column: str) -> str | None:
        return next(each.column for name, each in self._columns if name == column)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        if rows.height == 0:
            return self.nothing
        columns = [each.series(rows, name) for name, each in self._columns]
        found = pl.DataFrame([*columns, rows.get_column(TIME), rows.get_column(WEIGHT)])
        # With all columns of the input, rows that differ still do.
        return found if self._kept.issuperset(columns_of(rows)) else consolidated(found)


class ExplodeOperator(Operator):
    """Each row once for each element of an array."""

    def __init__(self, schema: pa.Schema, array: Evaluable, name: str, position: str | None, outer: bool) -> None:
        super().__init__(schema)
        self._array, self._name, self._position, self._outer = array, name, position, outer

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        if rows.height == 0:
            return self.nothing
        arrays = self._array.series(rows, self._name)
        sizes = arrays.list.len().fill_null(0).to_numpy().astype(np.int64)
        copies = np.maximum(sizes, 1) if self._outer else sizes
        check_copies(copies, width_of(rows))
        which, place = expanded(np.zeros_like(copies), copies)
        has = sizes[which] > 0
        items = arrays.filter(pl.Series(sizes > 0)).explode().extend_constant(None, 1)
        made = [items[np.where(has, np.cumsum(has) - 1, len(items) - 1)].alias(self._name)]
        if self._position is not None:
            made.append(pl.Series(self._position, place, dtype=pl.Int32()).set(pl.Series(~has), None))
        found = rows[which].hstack(made)
        return consolidated(found.select(*self.dtypes, TIME, WEIGHT))


class UnionAll(Operator):
    """``UNION ALL``: the rows of both inputs, under the names of the first."""

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        some = [
            conformed(each.rename(dict(zip(each.columns, self.nothing.columns, strict=True))), self.dtypes)
            for each in inputs
            if each.height
        ]
        return consolidated(pl.concat(some)) if some else self.nothing


class InputRelation(Operator):
    """A relation whose changes another evaluation computes.

    By the arrival clock, changes have the time of the step in which they arrive here.
    """

    def __init__(self, schema: pa.Schema, clock: Clock = "event") -> None:
        super().__init__(schema)
        self._clock = clock

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        if changes.height == 0:
            return self.nothing
        if self._clock == "arrival":
            changes = changes.with_columns(pl.lit(span.until - 1, pl.Int64).alias(TIME))
        return consolidated(conformed(changes, self.dtypes))
