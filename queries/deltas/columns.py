"""The columns that aggregates read, and the way to compute each aggregate from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...operators.aggregates import functions as exact
from ...operators.aggregates.approximate import approx_count_distinct
from ...operators.aggregates.parts import Aggregate
from .functions import DISTINCT_COUNT, Call, added, check, extreme, split, summary

__all__ = ["Columns", "Splits"]


class Splits(NamedTuple):
    """The columns of a row that represents several of its group: aggregates of such rows equal those of all."""

    extremes: dict[str, str]  # By aggregate: the column whose least or greatest value it is.
    summaries: dict[str, pl.Expr]  # By column: its value in the representative.


class Columns:
    """The columns that aggregates read, and the aggregates by the way to compute them.

    ``prefixes`` are the beginnings of each call's column names; by default they contain the call's position.
    """

    def __init__(self, calls: Sequence[Call], prefixes: Sequence[str] = ()) -> None:
        fields: list[pa.Field] = []
        self._calls = calls
        self._prefixes = prefixes or [f"__value{number}" for number in range(len(calls))]
        self.added: dict[str, Aggregate] = {}
        self.distinct: dict[str, tuple[list[str], Aggregate]] = {}
        self.extremes: dict[str, Aggregate] = {}
        self.summaries: dict[str, pl.Expr] = {}
        self.of_rows: list[str] = []
        self.lists: list[str] = []
        self.splits: Splits | None = Splits({}, {})
        """None if an aggregate takes all rows of a group."""
        for prefix, call in zip(self._prefixes, calls, strict=True):
            check(call)
            names = [f"{prefix}_{place}" for place in range(max(len(call.arguments), 1))]
            kinds = [each.type for each in call.arguments] or [pa.bool_()]
            make, outer = added(call.function), extreme(call.function)
            if call.function == DISTINCT_COUNT:
                names, kinds = names[:1], kinds[:1]  # the other argument is the error
                if call.error is None:
                    self.distinct[call.name] = (names, exact.count())
                else:
                    self.added[call.name] = approx_count_distinct(names[0], error=call.error)
            elif make is not None and call.distinct:
                counts = make is exact.count
                if not counts and len(call.arguments) != 1:
                    raise SchemaError(f"{call.function}(DISTINCT) of {len(call.arguments)} columns", expected="one")
                self.distinct[call.name] = (names, exact.count() if counts else make(names[0]))
            elif make is not None:
                if make is exact.count:
                    names, kinds = names[:1], [pa.bool_()]
                rows = not call.arguments and call.where is None
                self.added[call.name] = exact.count() if rows else make(names[0])
            elif outer is not None and call.stays:
                self.added[call.name] = outer(names[0])
            elif outer is not None:
                self.extremes[call.name] = outer(names[0])
                self.of_rows += names
                if self.splits is not None:
                    self.splits.extremes[call.name] = names[0]
            else:
                if call.distinct and not call.function.startswith("collect_"):
                    raise SchemaError(f"{call.function}(DISTINCT ...) is not kept up to date", expected="no DISTINCT")
                function = "collect_set" if call.distinct else call.function
                self.summaries[call.name] = summary(function)(names).alias(call.name)
                self.of_rows += names
                parts = split(function)
                if parts is None or self.splits is None:
                    self.splits = None
                else:
                    self.splits.summaries.update(
                        (name, each.alias(name)) for name, each in zip(names, parts(names), strict=True)
                    )
                if function.startswith("collect_") or function == "array_agg":
                    self.lists.append(call.name)
            fields += [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
        self.schema = pa.schema(fields)

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the columns to rows, with null where a row does not count."""
        columns: list[pl.Series] = []
        for prefix, call in zip(self._prefixes, self._calls, strict=True):
            arguments = call.arguments[:1] if call.function == DISTINCT_COUNT else call.arguments
            values = [each.series(rows, f"{prefix}_{place}") for place, each in enumerate(arguments)]
            counts = None if call.where is None else call.where.series(rows, "__where").fill_null(False)
            make = added(call.function)
            if make is exact.count and not call.distinct:
                values = [self._flag(rows, call, values, counts).alias(f"{prefix}_0")]
            elif counts is not None:
                masked = len(values) if make is not None or call.function in {"max_by", "min_by"} else 1
                values[:masked] = [each.set(~counts, None) for each in values[:masked]]
            columns += values
        return rows.with_columns(columns)

    @staticmethod
    def _flag(rows: pl.DataFrame, call: Call, values: list[pl.Series], counts: pl.Series | None) -> pl.Series:
        """Return true for the rows that a count counts, and null for the others."""
        flag = pl.Series(np.ones(rows.height, dtype=np.bool_)) if counts is None else counts
        for each in values:
            flag = flag & (each.fill_null(False) if call.function == "count_if" else each.is_not_null())
        return flag.set(~flag, None)
