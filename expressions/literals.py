"""Literals and the names of types, as Spark reads them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from .nodes import Constant, Days
from .places import Text
from .reader import UNITS_US

MOST_ROWS = 2**31 - 1

_TYPES: dict[Any, pa.DataType] = {
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.TEXT: pa.string(),
    exp.DType.VARCHAR: pa.string(),
    exp.DType.BINARY: pa.binary(),
    exp.DType.DATE: pa.date32(),
    exp.DType.TIMESTAMP: pa.timestamp("us", "UTC"),
    exp.DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    exp.DType.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
}


def type_of(node: exp.DataType, text: Text) -> pa.DataType:
    """Return the type of a name such as ``DECIMAL(10, 2)`` or ``ARRAY<INT>``."""
    kind, inner = node.this, node.expressions
    if kind is exp.DType.ARRAY and len(inner) == 1:
        return pa.list_(type_of(inner[0], text))
    if kind is exp.DType.MAP and len(inner) == 2:
        return pa.map_(*(type_of(each, text) for each in inner))
    if kind is exp.DType.STRUCT:
        return pa.struct([pa.field(each.name, type_of(each.args["kind"], text)) for each in inner])
    if kind is not exp.DType.DECIMAL:
        if kind not in _TYPES:
            raise text.error(
                node,
                f"the type {node.sql(dialect='spark')} is not known here",
                expected="a type of Spark's, such as BIGINT, STRING, DECIMAL(10, 2), TIMESTAMP or STRUCT<a: INT>",
            )
        return _TYPES[kind]
    sizes = [int(each.this.name) for each in inner]
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    if not 1 <= precision <= 38 or scale > precision:
        raise text.error(node, f"decimal({precision}, {scale}) is not possible", expected="at most 38 digits in all")
    return pa.decimal128(precision, scale)


def number(node: exp.Literal, text: Text, *, negative: bool = False) -> Constant:
    """Return a number: int, bigint or decimal if it is whole, decimal with a point, double with an exponent."""
    written = node.name
    sign = "-" if negative else ""
    try:
        value = Decimal(sign + written)
    except ArithmeticError:
        raise text.error(node, f"'{written}' is not a number") from None
    except ValueError:
        raise text.error(node, f"'{written}' is not a number") from None
    if "e" in written.lower():
        check_range(sign + written, exp.DType.DOUBLE, node, text)
        return Constant(float(value), pa.float64())
    exponent = value.as_tuple().exponent
    if "." not in written:
        whole = int(value)
        if -(2**31) <= whole < 2**31:
            return Constant(whole, pa.int32())
        if -(2**63) <= whole < 2**63:
            return Constant(whole, pa.int64())
    scale = -exponent if isinstance(exponent, int) else 0
    precision = max(len(value.as_tuple().digits), scale, 1)
    if precision > 38:
        raise text.error(node, f"'{written}' has more than 38 digits", hint="write it with an exponent, as a double")
    return Constant(value, pa.decimal128(precision, scale))


_RANGES: Mapping[exp.DType, tuple[Decimal, Decimal]] = {
    exp.DType.TINYINT: (Decimal(-(2**7)), Decimal(2**7 - 1)),
    exp.DType.SMALLINT: (Decimal(-(2**15)), Decimal(2**15 - 1)),
    exp.DType.BIGINT: (Decimal(-(2**63)), Decimal(2**63 - 1)),
    exp.DType.FLOAT: (Decimal("-3.4028234663852886E38"), Decimal("3.4028234663852886E38")),
    exp.DType.DOUBLE: (Decimal("-1.7976931348623157E308"), Decimal("1.7976931348623157E308")),
}


def check_range(written: str, kind: exp.DType, node: exp.Expr, text: Text) -> None:
    """Refuse a number that its type does not hold."""
    least, greatest = _RANGES[kind]
    try:
        fits = least <= Decimal(written) <= greatest
    except ArithmeticError:
        fits = False
    if not fits:
        raise text.error(node, f"'{node.name}' is not a {kind.name}", expected=f"a number from {least} to {greatest}")


def whole_type(value: int) -> pa.DataType:
    """Return the type of a whole number of at most 18 digits."""
    return pa.int32() if -(2**31) <= value < 2**31 else pa.int64()


def count(node: exp.Expr, text: Text, what: str, *, least: int = 1) -> int:
    """Return a whole number of rows within Spark's limits."""
    written = node.name if isinstance(node, exp.Literal) and not node.is_string else ""
    whole = written.isascii() and written.isdigit()
    if not whole or len(written) > 10 or not least <= int(written) <= MOST_ROWS:
        raise text.error(
            node,
            f"{what} {node.name} is not a whole number in its range",
            expected=f"a whole number from {least} to {MOST_ROWS}",
        )
    return int(written)


def interval(node: exp.Interval, text: Text) -> Constant:
    """Return an interval: of microseconds, or of months for months and years."""
    unit = node.text("unit")
    amount = node.this.name
    if unit in {"MONTH", "YEAR"}:
        months = int(amount) * (12 if unit == "YEAR" else 1)
        if abs(months) >= 2**31:
            raise text.error(node, "this interval is longer than Spark can hold")
        return Constant((months, 0, 0), pa.month_day_nano_interval())
    kind = Days if unit in {"DAY", "WEEK"} else timedelta
    return Constant(kind(microseconds=_microseconds(node, text)), pa.duration("us"))


def _microseconds(node: exp.Interval, text: Text) -> int:
    exact = Decimal(node.this.name) * UNITS_US[node.text("unit")]
    if exact != exact.to_integral_value() or abs(exact) > 10**9 * 86_400_000_000 - 1:
        raise text.error(node, "this interval is not a whole number of microseconds, or too long")
    return int(exact)


def length_us(node: exp.Interval, text: Text, what: str) -> int:
    """Return a window's positive, fixed length in microseconds."""
    if node.text("unit") in {"MONTH", "YEAR"}:
        raise text.error(node, f"a {node.text('unit').lower()} has no fixed length", hint=f"{what} 30 DAYS")
    found = _microseconds(node, text)
    if found <= 0:
        raise text.error(node, f"{what} must be longer than nothing")
    return found
