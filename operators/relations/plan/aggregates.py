"""The aggregates of the algebra and the types of their results, with Spark's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as patypes

from ....conf.errors import SchemaError
from ....expressions.kinds import spark_name
from ....expressions.nodes import Call, Constant, Expression
from ...aggregates.parts import is_ordered
from .nodes import Aggregation

_ALIASES = {
    "mean": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "approx_distinct": "approx_count_distinct",
    "array_agg": "collect_list",
}
# Functions that depend on an order, which a relation does not have, and their replacements.
ORDERLESS = {
    "any_value": "MIN(x) or MAX(x)",
    "first": "MIN_BY(x, time)",
    "first_value": "MIN_BY(x, time)",
    "last": "MAX_BY(x, time)",
    "last_value": "MAX_BY(x, time)",
    "collect_list": "COLLECT_SET(x), which has no order either but no repetitions",
}
# The relative standard deviation of APPROX_COUNT_DISTINCT: Spark's default, and the range that the sketches support.
# Spark's range has the same upper end; memory limits its lower end.
_ERROR = 0.05
_ERRORS = (0.001, 0.39)


def _same(types: Sequence[pa.DataType]) -> pa.DataType:
    return types[0]


def _double(_: Sequence[pa.DataType]) -> pa.DataType:
    return pa.float64()


def _long(_: Sequence[pa.DataType]) -> pa.DataType:
    return pa.int64()


def _sum(types: Sequence[pa.DataType]) -> pa.DataType:
    kind = types[0]
    if patypes.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 10), kind.scale)
    return pa.float64() if patypes.is_floating(kind) else pa.int64()


def _average(types: Sequence[pa.DataType]) -> pa.DataType:
    kind = types[0]
    if patypes.is_decimal(kind):
        return pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return pa.float64()


def _list(types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.list_(types[0])


def _numeric(kind: pa.DataType) -> bool:
    return bool(patypes.is_integer(kind) or patypes.is_floating(kind) or patypes.is_decimal(kind))


def _whole(kind: pa.DataType) -> bool:
    return bool(patypes.is_signed_integer(kind))


def _any(_: pa.DataType) -> bool:
    return True


# By name: the allowed numbers of arguments, a test of the first one's type, and the result's type.
_KINDS: dict[str, tuple[tuple[int, ...], Callable[[pa.DataType], bool], Callable[..., pa.DataType]]] = {
    "sum": ((1,), _numeric, _sum),
    "avg": ((1,), _numeric, _average),
    "min": ((1,), is_ordered, _same),
    "max": ((1,), is_ordered, _same),
    "min_by": ((2,), _any, _same),
    "max_by": ((2,), _any, _same),
    "stddev_samp": ((1,), _numeric, _double),
    "stddev_pop": ((1,), _numeric, _double),
    "var_samp": ((1,), _numeric, _double),
    "var_pop": ((1,), _numeric, _double),
    "median": ((1,), _numeric, _double),
    "percentile": ((2,), _numeric, _double),
    "approx_count_distinct": ((1, 2), _any, _long),
    "collect_set": ((1,), is_ordered, _list),
    "bit_and": ((1,), _whole, _same),
    "bit_or": ((1,), _whole, _same),
    "bit_xor": ((1,), _whole, _same),
}
_EXPECTED: dict[Callable[[pa.DataType], bool], tuple[str, str]] = {
    _numeric: ("a number", "cast it: CAST(x AS DOUBLE)"),
    _whole: ("a whole number", "cast it: CAST(x AS BIGINT)"),
    is_ordered: ("values that have an order", "take a field of it"),
}
AGGREGATES = frozenset({*_KINDS, *_ALIASES, *ORDERLESS, "count", "count_if", "bool_and", "bool_or"})

RANKS = {
    "row_number": pa.int32(),
    "rank": pa.int32(),
    "dense_rank": pa.int32(),
    "percent_rank": pa.float64(),
    "cume_dist": pa.float64(),
    "ntile": pa.int32(),
}
"""The window functions of a row's place, with Spark's types."""
OTHER_ROWS = frozenset(["lag", "lead", "first_value", "last_value", "nth_value"])
"""The window functions whose value is that of another row."""


def is_aggregate(function: str) -> bool:
    """Return whether the function, in lower case, is an aggregate."""
    return function in AGGREGATES


def _also(where: Expression | None, condition: Expression) -> Expression:
    return condition if where is None else Call("and", (where, condition), pa.bool_())


def aggregation(
    name: str,
    function: str,
    arguments: Sequence[Expression],
    *,
    distinct: bool = False,
    where: Expression | None = None,
) -> Aggregation:
    """Return the aggregate with its result's type, in the form that the algebra computes.

    ``count_if(p)`` becomes a count of the rows that satisfy ``p``, ``bool_and`` a minimum, ``bool_or`` a maximum; a
    minimum of distinct values is the minimum. Raise SchemaError if the arguments do not fit.
    """
    function = _ALIASES.get(function, function)
    types = [each.type for each in arguments]
    if function in ORDERLESS:
        raise SchemaError(
            f"{function.upper()} depends on an order of rows, and a relation has none",
            hint=f"write {ORDERLESS[function]}",
        )
    if function == "count":
        # A count of what is never null is a count of rows.
        constant = len(arguments) == 1 and isinstance(arguments[0], Constant) and arguments[0].value is not None
        given = () if constant and not distinct else tuple(arguments)
        if distinct and not given:
            raise SchemaError("COUNT(DISTINCT *) needs columns", hint="name the columns: COUNT(DISTINCT a, b)")
        return Aggregation(name, "count", given, pa.int64(), distinct, where)
    if function in {"count_if", "bool_and", "bool_or"}:
        if len(types) != 1 or not patypes.is_boolean(types[0]):
            raise SchemaError(f"{function.upper()} takes one condition", expected="a boolean", hint="compare: x > 0")
        if function == "count_if":
            if distinct:
                raise SchemaError("COUNT_IF takes no DISTINCT", hint="COUNT(DISTINCT x) FILTER (WHERE …)")
            return Aggregation(name, "count", (), pa.int64(), distinct=False, where=_also(where, arguments[0]))
        return aggregation(name, "min" if function == "bool_and" else "max", arguments, where=where)
    counts, fits, result = _KINDS[function]
    expected, hint = _EXPECTED.get(fits, ("", ""))
    if len(types) not in counts:
        given = f"{len(types)} argument" + ("" if len(types) == 1 else "s")
        raise SchemaError(f"{function.upper()} got {given}", expected=" or ".join(str(each) for each in counts))
    if not fits(types[0]):
        raise SchemaError(
            f"{function.upper()} of {spark_name(types[0])} is not possible",
            expected=expected,
            hint=hint,
        )
    if function in {"min_by", "max_by"} and not is_ordered(types[1]):
        raise SchemaError(
            f"{function.upper()} by {spark_name(types[1])} is not possible", expected="values that have an order"
        )
    if function in {"percentile", "approx_count_distinct"} and len(arguments) == 2:
        _check_second(function, arguments[1])
    if function == "bit_xor" and distinct:
        raise SchemaError(
            "BIT_XOR(DISTINCT …) is not supported",
            hint="make the values distinct in a subquery: SELECT DISTINCT k, x",
        )
    if function in {"min", "max", "bit_and", "bit_or", "collect_set", "approx_count_distinct", "min_by", "max_by"}:
        distinct = False
    return Aggregation(name, function, tuple(arguments), result(types), distinct, where)


def _check_second(function: str, argument: Expression) -> None:
    value = _number(argument)
    if value is None:
        raise SchemaError(f"the second argument of {function.upper()} must be a number", hint="write it as a literal")
    if function == "percentile" and not 0 <= value <= 1:
        raise SchemaError(f"{argument} is not between 0 and 1", hint="the median is PERCENTILE(x, 0.5)")
    least, most = _ERRORS
    if function == "approx_count_distinct" and not least <= value <= most:
        raise SchemaError(
            f"the error of APPROX_COUNT_DISTINCT is {argument}",
            expected=f"a relative standard deviation from {least} to {most}",
            hint=f"leave it out for {_ERROR}; COUNT(DISTINCT x) has no error",
        )


def error_of(each: Aggregation) -> float:
    """Return the relative standard deviation allowed for an APPROX_COUNT_DISTINCT."""
    given = _number(each.arguments[1]) if len(each.arguments) == 2 else None
    return _ERROR if given is None else given


def share_of(each: Aggregation) -> float | None:
    """Return the share of a percentile; None for other functions."""
    return _number(each.arguments[1]) if each.function == "percentile" else {"median": 0.5}.get(each.function)


def _number(expression: Expression) -> float | None:
    if not isinstance(expression, Constant) or isinstance(expression.value, bool):
        return None
    return float(expression.value) if isinstance(expression.value, int | float | Decimal) else None
