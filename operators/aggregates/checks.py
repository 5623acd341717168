"""Checks of the columns that an aggregate names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from .keys import is_ordered
from .parts import Aggregate

__all__ = ["check_named", "check_order", "check_ordered", "names_of", "number_type", "type_of"]


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several names as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def type_of(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return a column's type. Raise SchemaError unless there is exactly one such column."""
    if schema.names.count(column) != 1:
        raise SchemaError(f"{text}: there is no column {column}, or several", expected=f"one of {schema.names}")
    return schema.field(column).type


def number_type(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return a column's type. Raise SchemaError unless it is a numeric one."""
    kind = type_of(schema, column, text)
    types = pa.types
    if not (
        types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind)
    ):
        raise SchemaError(f"{text}: {column} is {kind}", expected="a column of numbers", hint="cast it to one")
    return kind


def check_ordered(kind: pa.DataType, column: str, text: str) -> None:
    """Raise SchemaError unless values of this type have an order."""
    if not is_ordered(kind):
        raise SchemaError(
            f"{text}: {column} is {kind}, whose values have no order here",
            expected="numbers, strings, binaries, booleans, dates, times, timestamps or intervals of days and seconds",
        )


def check_order(schema: pa.Schema, by: Sequence[str], text: str) -> None:
    """Raise an error unless rows can be ordered by these columns."""
    if not by:
        raise OptionError(f"{text} has no order", expected="at least one column in `by`, such as the time")
    for name in by:
        check_ordered(type_of(schema, name, text), name, text)


def check_named(aggregates: Mapping[str, object], taken: Collection[str]) -> None:
    """Raise OptionError for values that are no aggregates, SchemaError for names among the other columns, `taken`."""
    both = sorted(set(taken) & set(aggregates))
    if both:
        raise SchemaError(
            f"an aggregate is named {', '.join(both)}, and results have a column of that name",
            expected="other names than those of the results' other columns: " + ", ".join(sorted(taken)),
            hint="rename the aggregate",
        )
    wrong = [f"{name}={each!r}" for name, each in aggregates.items() if not isinstance(each, Aggregate)]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)} is no aggregate",
            expected="what the functions of upstream.aggregates make",
            hint="write for example n=us.count(), total=us.sum('value')",
        )
