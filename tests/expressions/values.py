"""Evaluate one function over columns given as Python's values."""

from calendar import monthrange
from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from upstream.expressions.compile import compiled
from upstream.expressions.nodes import Constant, Expression, Field
from upstream.expressions.types import call, cast

Column = tuple[Sequence[Any], pa.DataType]


def fields(*columns: Column) -> tuple[list[Expression], pl.DataFrame, pa.Schema]:
    """Fields ``a``, ``b``, … with rows and their schema."""
    names = "abcdefg"[: len(columns)]
    schema = pa.schema([(name, dtype) for name, (_, dtype) in zip(names, columns, strict=True)])
    table = pa.table([pa.array(values, dtype) for values, dtype in columns], schema=schema)
    made = pl.DataFrame(pl.from_arrow(table))
    return [Field(field.name, field.type) for field in schema], made, schema


def run(expression: Expression, frame: pl.DataFrame, schema: pa.Schema) -> list[Any]:
    """The values, after a look at their type."""
    found = compiled(expression, schema).evaluate(frame).to_arrow().cast(expression.type)
    assert len(found) == frame.height
    return found.to_pylist()


def evaluate(function: str, *columns: Column, constants: Sequence[Column] = ()) -> list[Any]:
    """The function of columns and, after them, of constants: each a column of one value."""
    given, frame, schema = fields(*columns)
    fixed = [Constant(values[0], dtype) for values, dtype in constants]
    return run(call(function, [*given, *fixed]), frame, schema)


def later(time: Any, months: int) -> Any:
    """A date or a time so many months later, at the last day of a month that is shorter; None outside the years."""
    count = time.year * 12 + time.month - 1 + months
    year, month = count // 12, count % 12 + 1
    if not 1 <= year <= 9999:
        return None
    return time.replace(year=year, month=month, day=min(time.day, monthrange(year, month)[1]))


def evaluate_cast(column: Column, dtype: pa.DataType, *, try_: bool = False) -> list[Any]:
    """The cast of a column."""
    given, frame, schema = fields(column)
    return run(cast(given[0], dtype, try_=try_), frame, schema)
