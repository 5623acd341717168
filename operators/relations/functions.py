"""The aggregates of continuous queries, and the way to maintain each under insertions and retractions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ..aggregates import functions as exact
from ..aggregates.approximate import approx_count_distinct
from ..aggregates.parts import Aggregate
from .operator import Evaluable


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate of a query."""

    name: str  # The result's column.
    function: str  # Spark's name in lower case.
    arguments: tuple[Evaluable, ...]  # Empty for `count(*)`.
    type: pa.DataType
    distinct: bool = False
    where: Evaluable | None = None  # Only rows for which it is true count.
    error: float | None = None  # The sketch's relative error; None for an exact count.
    stays: bool = False  # No row ever leaves.


_ADDED: Mapping[str, Callable[[str], Aggregate]] = {
    "avg": exact.avg,
    "count": exact.count,
    "count_if": exact.count,
    "mean": exact.avg,
    "std": exact.stddev_samp,
    "stddev": exact.stddev_samp,
    "stddev_pop": exact.stddev_pop,
    "stddev_samp": exact.stddev_samp,
    "sum": exact.sum_,
    "var_pop": exact.var_pop,
    "var_samp": exact.var_samp,
    "variance": exact.var_samp,
}
_EXTREME: Mapping[str, Callable[[str], Aggregate]] = {
    "any": exact.max_,
    "any_value": exact.any_value,
    "bool_and": exact.min_,
    "bool_or": exact.max_,
    "every": exact.min_,
    "max": exact.max_,
    "min": exact.min_,
    "some": exact.max_,
}

Summary = Callable[[Sequence[str]], pl.Expr]
"""Maps the names of the arguments' columns to an expression over a group's rows, one for each copy."""


def _values(name: str) -> pl.Expr:
    return pl.col(name).drop_nulls()


def _by(columns: Sequence[str], descending: bool, shown: int = 0) -> pl.Expr:
    value, by = columns
    known = pl.col(by).is_not_null()
    ordered = (
        pl.col(columns[shown])
        .filter(known)
        .sort_by(
            [pl.col(by).filter(known), pl.col(value).filter(known)], descending=[descending, True], nulls_last=True
        )
    )
    return ordered.first()


def _percentile(columns: Sequence[str]) -> pl.Expr:
    value, share = columns
    return _values(value).cast(pl.Float64).quantile(pl.col(share).first(), interpolation="linear")


def _nth(columns: Sequence[str]) -> pl.Expr:
    value, share = columns[:2]
    sorted_ = _values(value).sort()
    at = (pl.col(share).first() * pl.col(value).count()).ceil().cast(pl.Int64) - 1
    return sorted_.get(at.clip(0), null_on_oob=True)


_SUMMARIES: Mapping[str, Summary] = {
    "array_agg": lambda columns: _values(columns[0]).sort().implode(),
    "bit_and": lambda columns: _values(columns[0]).bitwise_and(),
    "bit_or": lambda columns: _values(columns[0]).bitwise_or(),
    "bit_xor": lambda columns: _values(columns[0]).bitwise_xor(),
    "collect_list": lambda columns: _values(columns[0]).sort().implode(),
    "collect_set": lambda columns: _values(columns[0]).unique().sort().implode(),
    "max_by": lambda columns: _by(columns, True),
    "median": lambda columns: _values(columns[0]).cast(pl.Float64).quantile(0.5, interpolation="linear"),
    "min_by": lambda columns: _by(columns, False),
    "mode": lambda columns: _values(columns[0]).mode().sort().first(),
    "percentile": _percentile,
    "percentile_approx": _nth,
    "approx_percentile": _nth,
}
DISTINCT_COUNT = "approx_count_distinct"
_SPLITS: Mapping[str, Callable[[Sequence[str]], Sequence[pl.Expr]]] = {
    **{name: lambda columns, one=_SUMMARIES[name]: [one(columns)] for name in ("bit_and", "bit_or", "bit_xor")},
    "max_by": lambda columns: [_by(columns, True, shown) for shown in (0, 1)],
    "min_by": lambda columns: [_by(columns, False, shown) for shown in (0, 1)],
}
ALL = frozenset(_ADDED) | frozenset(_EXTREME) | frozenset(_SUMMARIES) | {DISTINCT_COUNT}
"""All functions."""


def check(call: AggregateCall) -> None:
    """Raise SchemaError for an unknown function."""
    if call.function not in ALL:
        near = difflib.get_close_matches(call.function, ALL, 3)
        raise SchemaError(
            f"there is no aggregate {call.function} in continuous queries",
            expected=f"one of {', '.join(near or sorted(ALL))}",
            hint="for the value of the first or last row, use min_by or max_by with the time",
        )


def added(function: str) -> Callable[[str], Aggregate] | None:
    """Return the aggregate that follows from sums over changes; None for other functions."""
    return _ADDED.get(function)


def extreme(function: str) -> Callable[[str], Aggregate] | None:
    """Return the aggregate of a function that is a least or greatest value; None for other functions."""
    return _EXTREME.get(function)


def summary(function: str) -> Summary:
    """Return the expression for any other function, over all rows of a group."""
    return _SUMMARIES[function]


def split(function: str) -> Callable[[Sequence[str]], Sequence[pl.Expr]] | None:
    """Return a function that computes the argument columns of one row that represents several; None if none can."""
    return _SPLITS.get(function)


class Splits(NamedTuple):
    """The columns of a row that represents several of its group: aggregates of such rows equal those of all."""

    extremes: dict[str, str]  # By aggregate: the column whose least or greatest value it is.
    summaries: dict[str, pl.Expr]  # By column: its value in the representative.


class Columns:
    """The columns that aggregates read, and the aggregates by the way to compute them.

    ``prefixes`` are the beginnings of each call's column names; by default they contain the call's position.
    """

    def __init__(self, calls: Sequence[AggregateCall], prefixes: Sequence[str] = ()) -> None:
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
    def _flag(rows: pl.DataFrame, call: AggregateCall, values: list[pl.Series], counts: pl.Series | None) -> pl.Series:
        """Return true for the rows that a count counts, and null for the others."""
        flag = pl.Series(np.ones(rows.height, dtype=np.bool_)) if counts is None else counts
        for each in values:
            flag = flag & (each.fill_null(False) if call.function == "count_if" else each.is_not_null())
        return flag.set(~flag, None)
