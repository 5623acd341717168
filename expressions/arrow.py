"""Expressions on Arrow, for workers that do without Polars: columns, their fields, comparisons, logic of these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .kinds import BOOLEAN, DATE, DOUBLE, FLOAT, LOCAL_TIMESTAMP, TEXT, TIMESTAMP, is_integral, is_number
from .nodes import Call, Constant, Expression, Field

ArrowFunction = Callable[[Any], Any]
"""From a batch or a table to one value for each row."""

# Beyond it FLOAT rounds, as which Spark without its ANSI mode compares a FLOAT with a whole number.
_FLOAT_EXACT = 1 << 24


def arrow_function(expression: Expression) -> ArrowFunction | None:
    """Return an expression's function, or None if it needs Polars.

    No function can fail, and none depends on Spark's settings. As in Spark, a null is neither true nor false, and NaN
    is equal to NaN and greater than any number.
    """
    if expression.type == BOOLEAN and isinstance(expression, Call):
        made = _LOGIC.get(expression.function)
        if made is not None:
            return made(expression)
    return _operand(expression)


def _operand(expression: Expression) -> ArrowFunction | None:
    """Return the function of a column, a field, or a wider number of these."""
    if isinstance(expression, Field):
        name = expression.name
        return lambda rows: rows.column(name)
    if not isinstance(expression, Call) or not expression.arguments:
        return None
    inner = _operand(expression.arguments[0])
    if inner is None:
        return None
    if expression.function == "get_field":
        field = expression.arguments[1]
        assert isinstance(field, Constant)
        return lambda rows: pc.struct_field(inner(rows), [field.value])
    if expression.function == "cast" and _widens(expression.arguments[0].type, expression.type):
        return lambda rows: inner(rows).cast(expression.type)
    return None


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    if is_integral(given) and is_integral(wanted):
        return given.bit_width <= wanted.bit_width
    return (given, wanted) == (FLOAT, DOUBLE)


def _constant(expression: Expression) -> pa.Scalar | None:
    """Return a constant, also one that is cast to another kind of number."""
    if isinstance(expression, Call) and expression.function == "cast":
        (inner,) = expression.arguments
        if not (isinstance(inner, Constant) and is_number(inner.type) and inner.value is not None):
            return None
        if is_integral(expression.type) and is_integral(inner.type):
            return pa.scalar(inner.value, expression.type)
        return pa.scalar(float(inner.value), DOUBLE) if expression.type == DOUBLE else None
    if not isinstance(expression, Constant) or expression.value is None or isinstance(expression.value, Decimal):
        return None
    known = expression.type in (TEXT, BOOLEAN, DOUBLE) or is_integral(expression.type)
    return pa.scalar(expression.value, expression.type) if known else None


_COMPARED: Mapping[str, Callable[..., Any]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
    "lt": pc.less,
    "le": pc.less_equal,
}
_TURNED = {"eq": "eq", "ne": "ne", "gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
"""The comparison with its sides exchanged."""


def _comparison(call: Call) -> ArrowFunction | None:
    name, (left, right) = call.function, call.arguments
    if isinstance(left, Constant) or _constant(left) is not None:
        name, left, right = _TURNED[name], right, left
    return _compared(name, left, right)


def _compared(name: str, left: Expression, right: Expression) -> ArrowFunction | None:
    kind = left.type
    value, constant, other = _operand(left), _constant(right), _operand(right)
    ordered = is_integral(kind) or kind in (FLOAT, DOUBLE, TEXT, DATE, TIMESTAMP, LOCAL_TIMESTAMP)
    if value is None or not (ordered or (kind == BOOLEAN and name in ("eq", "ne"))):
        return None
    compare = _COMPARED[name]
    if constant is not None:
        if _rounds(left, right):
            return None
        if kind in (FLOAT, DOUBLE) and name in ("gt", "ge"):
            return lambda rows: pc.or_kleene(compare(found := value(rows), constant), pc.is_nan(found))
        return lambda rows: compare(value(rows), constant)
    if other is None:
        return None
    if kind in (FLOAT, DOUBLE):
        return _two_floats(name, value, other)
    return lambda rows: compare(value(rows), other(rows))


def _rounds(left: Expression, right: Expression) -> bool:
    """Return whether a FLOAT is compared with a whole number that FLOAT may not hold."""
    if not (isinstance(left, Call) and isinstance(right, Call) and left.arguments[0].type == FLOAT):
        return False
    whole = right.arguments[0]
    return isinstance(whole, Constant) and is_integral(whole.type) and abs(whole.value) > _FLOAT_EXACT


def _two_floats(name: str, left: ArrowFunction, right: ArrowFunction) -> ArrowFunction:
    if name in ("lt", "ge"):
        left, right = right, left
    if name in ("eq", "ne"):

        def equal(one: Any, two: Any) -> Any:
            return pc.or_(pc.equal(one, two), pc.and_(pc.is_nan(one), pc.is_nan(two)))

        found = _of(equal, left, right)
    else:

        def greater(one: Any, two: Any) -> Any:
            return pc.or_(pc.greater(one, two), pc.and_(pc.is_nan(one), pc.invert(pc.is_nan(two))))

        found = _of(greater, left, right)
    return _of(pc.invert, found) if name in ("ne", "ge", "le") else found


def _of(function: Callable[..., Any], *parts: ArrowFunction) -> ArrowFunction:
    return lambda rows: function(*(part(rows) for part in parts))


def _among(call: Call) -> ArrowFunction | None:
    value, *candidates = call.arguments
    equal = [None if _constant(each) is None else _compared("eq", value, each) for each in candidates]
    kept = [each for each in equal if each is not None]
    return functools.reduce(functools.partial(_of, pc.or_kleene), kept) if len(kept) == len(equal) else None


def _in_list(call: Call) -> ArrowFunction | None:
    value, listed = _operand(call.arguments[0]), call.arguments[1]
    if value is None or not isinstance(listed, Constant):
        return None
    values = pa.array(listed.value, listed.type.value_type)

    def found(rows: Any) -> Any:
        given = value(rows)
        return pc.if_else(pc.is_valid(given), pc.is_in(given, values), pa.scalar(None, BOOLEAN))

    return found


def _logical(function: Callable[..., Any]) -> Callable[[Call], ArrowFunction | None]:
    def made(call: Call) -> ArrowFunction | None:
        parts = [arrow_function(each) for each in call.arguments]
        kept = [each for each in parts if each is not None]
        return _of(function, *kept) if len(kept) == len(parts) else None

    return made


def _of_null(function: Callable[..., Any]) -> Callable[[Call], ArrowFunction | None]:
    def made(call: Call) -> ArrowFunction | None:
        value = _operand(call.arguments[0])
        return None if value is None else _of(function, value)

    return made


_LOGIC: Mapping[str, Callable[[Call], ArrowFunction | None]] = {
    **dict.fromkeys(_COMPARED, _comparison),
    "and": _logical(pc.and_kleene),
    "or": _logical(pc.or_kleene),
    "not": _logical(pc.invert),
    "in": _among,
    "in_list": _in_list,
    "is_null": _of_null(pc.is_null),
    "is_not_null": _of_null(pc.is_valid),
}
