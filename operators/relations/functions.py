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
from .ordered_values import List, Mode, Percentile, Result, ValueOrder


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
    share: float = 0.5  # Of a percentile.
    order: tuple[tuple[bool, bool], ...] = ()  # Descending, and nulls first: of the last arguments, then the first one.


ADDED: Mapping[str, Callable[[str], Aggregate]] = {
    "avg": exact.avg,
    "count": exact.count,
    "stddev_pop": exact.stddev_pop,
    "stddev_samp": exact.stddev_samp,
    "sum": exact.sum_,
    "var_pop": exact.var_pop,
    "var_samp": exact.var_samp,
}
_NAMED: Mapping[str, Callable[[str, str], Aggregate]] = {"avg": exact.avg_of, "sum": exact.sum_of}
"""Those that can overflow, from a column and the text of the call."""
EXTREME: Mapping[str, Callable[[str], Aggregate]] = {
    "max": exact.max_,
    "min": exact.min_,
}

ORDERED: Mapping[str, Callable[[AggregateCall, bool], Result]] = {
    "approx_percentile": lambda call, down: Percentile(call.name, call.share, continuous=False, descending=down),
    "collect_list": lambda call, _: List(call.name, distinct=False),
    "collect_set": lambda call, _: List(call.name, distinct=True),
    "median": lambda call, down: Percentile(call.name, call.share, continuous=True, descending=down),
    "mode": lambda call, down: Mode(call.name, greatest=down),
    "percentile": lambda call, down: Percentile(call.name, call.share, continuous=True, descending=down),
    "percentile_disc": lambda call, down: Percentile(call.name, call.share, continuous=False, descending=down),
}
"""The result of a call, over values in ascending order or, for a list, in the call's order."""


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


_SUMMARIES: Mapping[str, Callable[[Sequence[str]], Sequence[pl.Expr]]] = {
    "bit_and": lambda columns: [pl.col(columns[0]).bitwise_and()],
    "bit_or": lambda columns: [pl.col(columns[0]).bitwise_or()],
    "bit_xor": lambda columns: [pl.col(columns[0]).bitwise_xor()],
    "max_by": lambda columns: [_by(columns, True, shown) for shown in (0, 1)],
    "min_by": lambda columns: [_by(columns, False, shown) for shown in (0, 1)],
}
"""From the arguments' columns: those of a row that represents several; the first is also the result."""
DISTINCT_COUNT = "approx_count_distinct"
ALL = frozenset([*ADDED, *EXTREME, *ORDERED, *_SUMMARIES, DISTINCT_COUNT])
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


def _added(call: AggregateCall, column: str) -> Aggregate:
    named = _NAMED.get(call.function)
    if named is None:
        return ADDED[call.function](column)
    argument = call.arguments[0].text
    whole = argument[1:-1] if argument.startswith("(") and argument.endswith(")") else argument
    return named(column, f"{call.function}({'DISTINCT ' * call.distinct}{whole})")


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
        shared: dict[object, ValueOrder] = {}
        self._calls = calls
        self._arguments: list[Sequence[Evaluable]] = []
        self._prefixes = prefixes or [f"__value{number}" for number in range(len(calls))]
        self.added: dict[str, Aggregate] = {}
        self.distinct: dict[str, tuple[list[str], Aggregate]] = {}
        self.extremes: dict[str, Aggregate] = {}
        self.summaries: dict[str, pl.Expr] = {}
        self.ordered: list[ValueOrder] = []
        self.of_rows: list[str] = []
        self.splits = Splits({}, {})
        for prefix, call in zip(self._prefixes, calls, strict=True):
            check(call)
            names = [f"{prefix}_{place}" for place in range(max(len(call.arguments), 1))]
            kinds = [each.type for each in call.arguments] or [pa.bool_()]
            make, outer = ADDED.get(call.function), EXTREME.get(call.function)
            given = call.arguments
            if call.function == DISTINCT_COUNT:
                names, kinds, given = names[:1], kinds[:1], given[:1]  # the other argument is the error
                if call.error is None:
                    self.distinct[call.name] = (names, exact.count())
                else:
                    self.added[call.name] = approx_count_distinct(names[0], error=call.error)
            elif make is not None and call.distinct:
                counts = make is exact.count
                if not counts and len(call.arguments) != 1:
                    raise SchemaError(f"{call.function}(DISTINCT) of {len(call.arguments)} columns", expected="one")
                self.distinct[call.name] = (names, exact.count() if counts else _added(call, names[0]))
            elif make is not None:
                if make is exact.count:
                    names, kinds = names[:1], [pa.bool_()]
                rows = not call.arguments and call.where is None
                self.added[call.name] = exact.count() if rows else _added(call, names[0])
            elif outer is not None and call.stays:
                self.added[call.name] = outer(names[0])
            elif outer is not None:
                self.extremes[call.name] = outer(names[0])
                self.of_rows += names
                self.splits.extremes[call.name] = names[0]
            elif call.distinct:
                raise SchemaError(f"{call.function}(DISTINCT ...) is not kept up to date", expected="no DISTINCT")
            elif call.function in ORDERED:
                made = ORDERED[call.function](call, bool(call.order) and call.order[-1][0])
                given = given if isinstance(made, List) else given[:1]
                directions = call.order if isinstance(made, List) and call.order else ((False, True),)
                key = given, directions, call.where
                if key not in shared:
                    in_order = (*names[1 : len(given)], names[0])
                    self.ordered.append(shared.setdefault(key, ValueOrder(in_order, directions, [])))
                else:
                    given = given[:0]
                shared[key].results.append(made)
                names, kinds = names[: len(given)], kinds[: len(given)]
            else:
                summary = _SUMMARIES[call.function](names)
                self.summaries[call.name] = summary[0].alias(call.name)
                self.of_rows += names
                self.splits.summaries.update(
                    (name, each.alias(name)) for name, each in zip(names, summary, strict=True)
                )
            self._arguments.append(given)
            fields += [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
        self.schema = pa.schema(fields)

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the columns to rows, with null where a row does not count."""
        columns: list[pl.Series] = []
        for prefix, call, arguments in zip(self._prefixes, self._calls, self._arguments, strict=True):
            values = [each.series(rows, f"{prefix}_{place}") for place, each in enumerate(arguments)]
            counts = None if call.where is None else call.where.series(rows, "__where").fill_null(False)
            make = ADDED.get(call.function)
            if make is exact.count and not call.distinct:
                values = [self._flag(rows, values, counts).alias(f"{prefix}_0")]
            elif counts is not None:
                masked = len(values) if make is not None or call.function in {"max_by", "min_by"} else 1
                values[:masked] = [each.set(~counts, None) for each in values[:masked]]
            columns += values
        return rows.with_columns(columns)

    @staticmethod
    def _flag(rows: pl.DataFrame, values: list[pl.Series], counts: pl.Series | None) -> pl.Series:
        """Return true for the rows that a count counts, and null for the others."""
        flag = pl.Series(np.ones(rows.height, dtype=np.bool_)) if counts is None else counts
        for each in values:
            flag = flag & each.is_not_null()
        return flag.set(~flag, None)
