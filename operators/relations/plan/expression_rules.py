"""Expressions that may be evaluated earlier or more often, and their operands in one order."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.types as patypes

from ....expressions.nodes import Call, Constant, Expression, chain, walk
from .identity import content

# Functions that return a value or null for all arguments of their types, and never fail.
_TOTAL = frozenset(
    [
        "and",
        "or",
        "not",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "eq_null_safe",
        "is_null",
        "is_not_null",
        "in",
        "in_list",
        "between",
        "coalesce",
        "if",
        "case",
        "nullif",
        "upper",
        "lower",
        "length",
        "char_length",
        "concat",
        "trim",
        "ltrim",
        "rtrim",
        "startswith",
        "endswith",
        "contains",
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "second",
        "quarter",
        "isnan",
        "local_time",
        "nvl",
        "greatest",
        "least",
        "get_field",
        "array",
    ]
)
_COMMUTATIVE = frozenset({"eq", "ne", "eq_null_safe", "add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"})
_ARITHMETIC = {"add", "multiply", "negate", "subtract"}
_MIRRORED = {"gt": "lt", "ge": "le"}
_WIDTHS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 3, pa.int64(): 4}


def never_fails(expression: Expression, *, but_intervals: bool = False) -> bool:
    """Return whether the expression raises no error for any row, so that a join may evaluate it for rows it drops.

    ``but_intervals`` also accepts a time plus or minus an interval, which fails only beyond the year 294,000.
    """
    return all(
        _total(each)
        or (but_intervals and each.function.removesuffix("_in_zone") in {"add_interval", "subtract_interval"})
        for each in walk(expression)
        if isinstance(each, Call)
    )


def _total(call: Call) -> bool:
    if call.function == "cast":
        inner = call.arguments[0].type
        return inner == call.type or _widens(inner, call.type)
    if call.function in {"like", "ilike"}:
        return isinstance(call.arguments[1], Constant)
    if call.function in _ARITHMETIC:
        return patypes.is_floating(call.type)
    return call.function in _TOTAL or call.function.startswith("try_")


def _widens(inner: pa.DataType, outer: pa.DataType) -> bool:
    if inner in _WIDTHS:
        return patypes.is_floating(outer) or _WIDTHS.get(outer, 0) >= _WIDTHS[inner]
    return bool(patypes.is_floating(inner) and patypes.is_float64(outer))


def size(expression: Expression) -> int:
    """Return the number of the expression's nodes."""
    return sum(1 for _ in walk(expression))


def ordered(expression: Expression) -> Expression:
    """Return an equivalent expression with canonically ordered operands; AND and OR stay if one may guard another."""
    if not isinstance(expression, Call):
        return expression
    function = expression.function
    if function in {"and", "or"}:
        return chain(function, _in_order(expression, function))
    arguments = [ordered(each) for each in expression.arguments]
    if function == "cast":
        inner = arguments[0]
        return inner if inner.type == expression.type else replace(expression, arguments=tuple(arguments))
    if function in _COMMUTATIVE:
        arguments.sort(key=content)
    elif function in _MIRRORED:
        function = _MIRRORED[function]
        arguments.reverse()
    elif function == "in":
        arguments = [arguments[0], *sorted(set(arguments[1:]), key=content)]
    return Call(function, tuple(arguments), expression.type)


def conjuncts_in_order(condition: Expression) -> list[Expression]:
    """Return a conjunction's distinct conditions, in canonical order if none of them can fail."""
    return _in_order(condition, "and")


def _in_order(expression: Expression, function: str) -> list[Expression]:
    if not (isinstance(expression, Call) and expression.function == function):
        return [ordered(expression)]
    parts = list(dict.fromkeys(part for each in expression.arguments for part in _in_order(each, function)))
    return sorted(parts, key=content) if all(never_fails(each, but_intervals=True) for each in parts) else parts
