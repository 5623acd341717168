"""Implicit casts of Spark's ANSI mode: to a common type, or to the type of a function's operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..conf.errors import SchemaError
from .kinds import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INTEGRALS,
    LOCAL_TIMESTAMP,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    as_decimal,
    decimal_of_constant,
    is_decimal,
    is_fractional,
    is_integral,
    is_number,
    is_time,
    spark_name,
    standard,
    wider_decimal,
)
from .nodes import Call, Constant, Expression

_ORDER = (*INTEGRALS, FLOAT, DOUBLE)


def common(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the common type for ``UNION``, ``CASE``, ``IN`` and ``COALESCE``; raise SchemaError if there is none."""
    found: pa.DataType = NULL
    for each in types:
        wider = _wider(found, standard(each))
        if wider is None:
            names = list(dict.fromkeys(spark_name(standard(each)) for each in types))
            raise SchemaError(
                f"values of the types {', '.join(names)} have no type in common",
                expected="values of one type, or of types that Spark casts to one",
                hint="cast them to one type",
            )
        found = wider
    return found


def _wider(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    if two in (one, NULL):
        return one
    if one == NULL:
        return two
    if is_number(one) and is_number(two):
        return _wider_number(one, two)
    if is_time(one) and is_time(two):
        return TIMESTAMP if TIMESTAMP in (one, two) else LOCAL_TIMESTAMP
    if TEXT in (one, two):
        other = two if one == TEXT else one
        return _promoted(other)
    return _wider_nested(one, two)


def _wider_number(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    if is_decimal(one) or is_decimal(two):
        if {FLOAT, DOUBLE} & {one, two}:
            return DOUBLE
        return wider_decimal([as_decimal(one), as_decimal(two)])
    wider = max(one, two, key=_ORDER.index)
    return DOUBLE if wider == FLOAT else wider  # FLOAT and a whole number, of which FLOAT would lose digits


def _promoted(other: pa.DataType) -> pa.DataType | None:
    if is_integral(other):
        return LONG
    if is_fractional(other):
        return DOUBLE
    return other if other in (TEXT, BOOLEAN, BINARY) or is_time(other) else None


def _wider_nested(one: pa.DataType, two: pa.DataType) -> pa.DataType | None:
    lists = pa.types.is_list(one) and pa.types.is_list(two)
    if not lists or one.value_type != two.value_type:
        return None
    return one


def standardized(expression: Expression) -> Expression:
    """Cast an expression to Spark's own type for its values."""
    return _cast(expression, standard(expression.type))


def _cast(expression: Expression, dtype: pa.DataType, function: str = "cast") -> Expression:
    if expression.type == dtype:
        return expression
    if isinstance(expression, Constant) and expression.value is None:
        return Constant(None, dtype)
    return Call(function, (expression,), dtype)


def with_common_type(values: Sequence[Expression]) -> tuple[Expression, ...]:
    """Cast values to their common type; raise SchemaError if there is none."""
    dtype = common([each.type for each in values])
    return tuple(_cast(each, dtype) for each in values)


def numbers_of_both(left: Expression, right: Expression) -> tuple[Expression, Expression] | None:
    """Cast both operands of arithmetic to one kind of number; return None if that is impossible.

    Decimals keep their precision and scale. A whole number beside them becomes the decimal that holds its type, or for
    a constant the least decimal that holds it.
    """
    one, other = _text_as_number(left, right.type), _text_as_number(right, left.type)
    if one is None or other is None:
        return None
    left, right = one, other
    types = left.type, right.type
    if NULL in types:
        dtype = next((each for each in types if each != NULL), DOUBLE)
        return (_cast(left, dtype), _cast(right, dtype)) if is_number(dtype) else None
    if not all(map(is_number, types)):
        return None
    if not any(map(is_decimal, types)):
        dtype = common(types)
        return _cast(left, dtype), _cast(right, dtype)
    if {FLOAT, DOUBLE} & set(types):
        return _cast(left, DOUBLE), _cast(right, DOUBLE)
    return _decimal(left), _decimal(right)


def _decimal(number: Expression) -> Expression:
    if isinstance(number, Constant) and is_integral(number.type):
        return _cast(number, decimal_of_constant(number.value))
    return _cast(number, as_decimal(number.type))


def _text_as_number(value: Expression, other: pa.DataType) -> Expression | None:
    if value.type != TEXT:
        return value
    if not is_number(other):
        return None
    return _cast(value, LONG if is_integral(other) else DOUBLE)


def implicit(value: Expression, dtype: pa.DataType) -> Expression | None:
    """Cast a value to a function's operand type; return None if Spark has no implicit cast."""
    given = value.type
    if given in (dtype, NULL) or (given == TEXT and dtype not in (BINARY, DURATION)):
        return _cast(value, dtype)
    if dtype == TEXT:
        return _cast(value, dtype) if is_number(given) or is_time(given) or given == BOOLEAN else None
    if (is_number(given) and is_number(dtype)) or (is_time(given) and is_time(dtype)):
        return _cast(value, dtype)
    return _cast(value, dtype) if (given, dtype) == (TEXT, BINARY) else None


def cast(expression: Expression, dtype: pa.DataType, *, try_: bool = False) -> Expression:
    """Return a CAST or TRY_CAST; raise SchemaError if Spark's ANSI mode has no such cast."""
    expression, dtype = standardized(expression), standard(dtype)
    given = expression.type
    if not (given in (dtype, NULL) or _castable(given, dtype)):
        raise SchemaError(
            f"{expression} is of type {spark_name(given)}, which cannot be cast to {spark_name(dtype)}",
            expected=_targets(given),
            hint=_CAST_HINTS.get((given, dtype), ""),
        )
    return _cast(expression, dtype, "try_cast" if try_ else "cast")


_SECONDS_OF = "EXTRACT(HOUR FROM i) is a part of it, and timestampdiff(SECOND, a, b) counts the seconds between times"
_CAST_HINTS = {
    **dict.fromkeys([(DURATION, each) for each in (*INTEGRALS, DOUBLE, TEXT)], _SECONDS_OF),
    (TIMESTAMP, BOOLEAN): "compare it with another timestamp",
    (DATE, LONG): "unix_date(…) counts the days since 1970",
    (DATE, BYTE): "unix_date(…) counts the days since 1970",
}


def _castable(given: pa.DataType, dtype: pa.DataType) -> bool:
    if is_number(given):
        return is_number(dtype) or dtype in (TEXT, BOOLEAN, TIMESTAMP)
    if given == TEXT:
        return is_number(dtype) or is_time(dtype) or dtype in (BOOLEAN, BINARY)
    if given == BOOLEAN:
        return is_number(dtype) or dtype == TEXT
    if given == TIMESTAMP:
        return is_time(dtype) or is_number(dtype) or dtype == TEXT
    if given in (DATE, LOCAL_TIMESTAMP):
        return is_time(dtype) or dtype == TEXT
    return (given, dtype) == (BINARY, TEXT)


def _targets(given: pa.DataType) -> str:
    choices = (BYTE, *INTEGRALS[1:], FLOAT, DOUBLE, BOOLEAN, TEXT, BINARY, DATE, TIMESTAMP, LOCAL_TIMESTAMP)
    names = [spark_name(each) for each in choices if each == given or _castable(given, each)]
    if _castable(given, pa.decimal128(10, 0)):
        names.append("DECIMAL")
    return "a cast to " + " or ".join(names) if names else "no cast"


Rule = Callable[[str, Sequence[Expression]], Expression]
"""Returns the call with casts, from a function's name and its arguments in Spark's own types."""


def misfit(function: str, arguments: Sequence[Expression], expected: str, hint: str = "") -> SchemaError:
    """Return the error of a function that does not take these arguments."""
    given = ", ".join(f"{each} ({spark_name(each.type)})" for each in arguments)
    return SchemaError(f"{function} does not take ({given})", expected=expected, hint=hint)


@dataclass(frozen=True)
class Signature:
    """The rule of a function with fixed argument and result types."""

    result: pa.DataType
    takes: tuple[pa.DataType, ...]
    optional: int = 0  # number of trailing arguments that may be omitted
    name: str = ""  # the canonical name, if the function is an alias

    def __call__(self, function: str, arguments: Sequence[Expression]) -> Expression:
        """Return the call with casts; raise SchemaError if the arguments do not fit."""
        if not len(self.takes) - self.optional <= len(arguments) <= len(self.takes):
            raise misfit(function, arguments, self.written(function))
        made = [implicit(value, dtype) for value, dtype in zip(arguments, self.takes, strict=False)]
        if None in made:
            raise misfit(function, arguments, self.written(function))
        return Call(self.name or function, tuple(each for each in made if each is not None), self.result)

    def written(self, function: str) -> str:
        """Return the function with its argument types, for the documentation."""
        needed = len(self.takes) - self.optional
        text = ", ".join(map(spark_name, self.takes[:needed]))
        for each in self.takes[needed:]:
            text += f"[, {spark_name(each)}]" if text else f"[{spark_name(each)}]"
        return f"{function}({text})"
