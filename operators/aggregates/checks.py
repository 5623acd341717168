"""What the columns that an aggregate names must be."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from .keys import is_ordered

__all__ = ["check_order", "check_ordered", "names_of", "number_type", "type_of"]


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several names as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def type_of(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return the type of the one column of that name."""
    if schema.names.count(column) != 1:
        raise SchemaError(f"{text}: there is no column {column}, or several", expected=f"one of {schema.names}")
    return schema.field(column).type


def number_type(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return the type of a column, which must be one that can be added up."""
    kind = type_of(schema, column, text)
    types = pa.types
    if not (
        types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind)
    ):
        raise SchemaError(f"{text}: {column} is {kind}", expected="a column of numbers", hint="cast it to one")
    return kind


def check_ordered(kind: pa.DataType, column: str, text: str) -> None:
    """Raise unless values of this type have an order."""
    if not is_ordered(kind):
        raise SchemaError(
            f"{text}: {column} is {kind}, whose values have no order here",
            expected="numbers, strings, binaries, booleans, dates or timestamps",
        )


def check_order(schema: pa.Schema, by: Sequence[str], text: str) -> None:
    """Raise unless rows can be ordered by these columns."""
    if not by:
        raise OptionError(f"{text} has no order", expected="at least one column in `by`, such as the time")
    for name in by:
        check_ordered(type_of(schema, name, text), name, text)
