"""The aggregates of continuous queries, and the way to maintain each under insertions and retractions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...operators.aggregates import functions as exact
from ...operators.aggregates.parts import Aggregate
from .operator import Computed

__all__ = ["ALL", "DISTINCT_COUNT", "Call", "Summary", "added", "check", "extreme", "split", "summary"]


@dataclass(frozen=True)
class Call:
    """An aggregate of a query."""

    name: str  # The result's column.
    function: str  # Spark's name in lower case.
    arguments: tuple[Computed, ...]  # Empty for `count(*)`.
    type: pa.DataType
    distinct: bool = False
    where: Computed | None = None  # Only rows for which it is true count.
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


def check(call: Call) -> None:
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
