"""The aggregates of the algebra and the types of their results, with Spark's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as patypes

from ....conf.errors import SchemaError
from ....expressions.coercion import implicit
from ....expressions.kinds import BINARY, NULL, TEXT, is_time, spark_name
from ....expressions.nodes import Call, Constant, Expression
from ....expressions.types import call
from ...aggregates.parts import is_ordered
from .nodes import Aggregation, Order

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
    "percentile_approx": "approx_percentile",
    "percentile_cont": "percentile",
}
TEXT_LISTS = frozenset(["listagg", "string_agg"])
# Functions that depend on an order, which a relation does not have, and their replacements.
ORDERLESS = {
    "any_value": "MIN(x) or MAX(x)",
    "first": "MIN_BY(x, time)",
    "first_value": "MIN_BY(x, time)",
    "last": "MAX_BY(x, time)",
    "last_value": "MAX_BY(x, time)",
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


def _measured(kind: pa.DataType) -> bool:
    return _numeric(kind) or is_time(kind)


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
    "percentile_disc": ((2,), _numeric, _double),
    "approx_percentile": ((2, 3), _measured, _same),
    "mode": ((1, 2), is_ordered, _same),
    "collect_list": ((1,), is_ordered, _list),
    "approx_count_distinct": ((1, 2), _any, _long),
    "collect_set": ((1,), is_ordered, _list),
    "bit_and": ((1,), _whole, _same),
    "bit_or": ((1,), _whole, _same),
    "bit_xor": ((1,), _whole, _same),
}
_EXPECTED: dict[Callable[[pa.DataType], bool], tuple[str, str]] = {
    _numeric: ("a number", "cast it: CAST(x AS DOUBLE)"),
    _measured: ("a number or a time", "cast it: CAST(x AS DOUBLE)"),
    _whole: ("a whole number", "cast it: CAST(x AS BIGINT)"),
    is_ordered: ("values that have an order", "take a field of it"),
}
AGGREGATES = frozenset({*_KINDS, *_ALIASES, *ORDERLESS, "count", "count_if", "bool_and", "bool_or", *TEXT_LISTS})


_LISTS = frozenset(["collect_list", "collect_set"])
# By function: the arguments beside WITHIN GROUP, which some functions always have.
_WITHIN = {"percentile_cont": ("0.9",), "percentile_disc": ("0.9",), "mode": ()}
_WITHIN_ALONE = frozenset(["percentile_cont", "percentile_disc"])

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
    order: Sequence[Order] = (),
) -> Aggregation:
    """Return the aggregate with its result's type, in the form that the algebra computes.

    ``count_if(p)`` becomes a count of the rows that satisfy ``p``, ``bool_and`` a minimum, ``bool_or`` a maximum; a
    minimum of distinct values is the minimum. Raise SchemaError if the arguments do not fit.
    """
    if order or function in _WITHIN_ALONE:
        arguments = _within_group(function, arguments, order)
    function = _ALIASES.get(function, function)
    if distinct and function == "collect_list":
        function = "collect_set"
    types = [each.type for each in arguments]
    if function in ORDERLESS:
        raise SchemaError(
            f"{function.upper()} depends on an order of rows, and a relation has none",
            hint=f"write {ORDERLESS[function]}",
        )
    if function in {"count", "count_if", "bool_and", "bool_or"}:
        return _of_conditions(name, function, arguments, distinct, where)
    counts, fits, result = _KINDS[function]
    expected, hint = _EXPECTED.get(fits, ("", ""))
    if len(types) not in counts:
        given = f"{len(types)} argument" + ("" if len(types) == 1 else "s")
        raise SchemaError(f"{function.upper()} got {given}", expected=" or ".join(str(each) for each in counts))
    if not fits(types[0]):
        raise SchemaError(
            f"{function.upper()} of {spark_name(types[0])} is not possible",
            expected=expected,
            hint="count its units: timestampdiff(SECOND, a, b)" if patypes.is_duration(types[0]) else hint,
        )
    if function in {"min_by", "max_by"} and not (is_ordered(types[1]) and not patypes.is_nested(types[1])):
        raise SchemaError(
            f"{function.upper()} by {spark_name(types[1])} is not possible", expected="values that have an order"
        )
    if function == "approx_count_distinct" and len(arguments) == 2:
        _check_error(arguments[1])
    directions: tuple[tuple[bool, bool], ...] = ()
    if function in _LISTS:
        arguments, directions = _list_order(arguments[0], order, distinct=function == "collect_set")
    elif function in {"percentile", "percentile_disc", "approx_percentile", "mode"}:
        arguments = _checked(function, arguments)
        directions = tuple((each.descending, True) for each in order if each.descending)
    if distinct and function in {"bit_xor", "median", "percentile", "percentile_disc", "approx_percentile", "mode"}:
        raise SchemaError(
            f"{function.upper()}(DISTINCT …) is not supported",
            hint="make the values distinct in a subquery: SELECT DISTINCT k, x",
        )
    if function in {"min", "max", "bit_and", "bit_or", "collect_set", "approx_count_distinct", "min_by", "max_by"}:
        distinct = False
    return Aggregation(name, function, tuple(arguments), result(types), distinct, where, directions)


def _of_conditions(
    name: str, function: str, arguments: Sequence[Expression], distinct: bool, where: Expression | None
) -> Aggregation:
    if function == "count":
        # A count of what is never null is a count of rows.
        constant = len(arguments) == 1 and isinstance(arguments[0], Constant) and arguments[0].value is not None
        given = () if constant and not distinct else tuple(arguments)
        if distinct and not given:
            raise SchemaError("COUNT(DISTINCT *) needs columns", hint="name the columns: COUNT(DISTINCT a, b)")
        return Aggregation(name, "count", given, pa.int64(), distinct, where)
    if len(arguments) != 1 or not patypes.is_boolean(arguments[0].type):
        raise SchemaError(f"{function.upper()} takes one condition", expected="a boolean", hint="compare: x > 0")
    if function == "count_if":
        if distinct:
            raise SchemaError("COUNT_IF takes no DISTINCT", hint="COUNT(DISTINCT x) FILTER (WHERE …)")
        return Aggregation(name, "count", (), pa.int64(), distinct=False, where=_also(where, arguments[0]))
    return aggregation(name, "min" if function == "bool_and" else "max", arguments, where=where)


def text_list(function: str, arguments: Sequence[Expression]) -> tuple[Expression, Expression]:
    """Return the texts and the separator of LISTAGG."""
    value, separator, *more = [*arguments, *(Constant(None, NULL) for _ in range(2))]
    text = implicit(value, TEXT) if arguments and value.type != BINARY and len(more) < 3 else None
    if text is None or not isinstance(separator, Constant) or separator.type not in (TEXT, NULL):
        given = ", ".join(spark_name(each.type) for each in arguments)
        raise SchemaError(
            f"{function.upper()} got ({given})",
            expected=f"{function.upper()}(text, ', '): a value and a literal separator",
            hint="cast the value: CAST(x AS STRING)",
        )
    return text, Constant(separator.value or "", TEXT)


def joined_list(texts: Expression, separator: Expression) -> Expression:
    """Return the texts of a list in one; null if there are none."""
    there = call("gt", [call("size", [texts]), Constant(0, pa.int32())])
    return call("if", [there, call("array_join", [texts, separator]), Constant(None, NULL)])


def _within_group(function: str, arguments: Sequence[Expression], order: Sequence[Order]) -> Sequence[Expression]:
    """Return the arguments; of WITHIN GROUP, the one of its ORDER BY is the first."""
    if _ALIASES.get(function, function) in _LISTS:
        return arguments
    given = _WITHIN.get(function)
    if given is None:
        raise SchemaError(
            f"{function.upper()} has no ORDER BY", hint="the value of the row with the least y is MIN_BY(x, y)"
        )
    if len(order) != 1 or len(arguments) != len(given):
        usage = f"{function.upper()}({', '.join(given)}) WITHIN GROUP (ORDER BY x)"
        raise SchemaError(f"{function.upper()} takes the values of one ORDER BY", expected=usage)
    return [order[0].expression, *arguments]


def _list_order(
    value: Expression, order: Sequence[Order], *, distinct: bool
) -> tuple[Sequence[Expression], tuple[tuple[bool, bool], ...]]:
    """Return a list's value with the other keys of its order, and the directions of these and of the value."""
    keys: dict[Expression, tuple[bool, bool]] = {}
    last = (False, True)
    for each in order:
        if each.expression == value:  # Equal values need no further order.
            last = (each.descending, True)
            break
        if not is_ordered(each.expression.type):
            raise SchemaError(
                f"ORDER BY {spark_name(each.expression.type)} is not possible",
                expected="values that have an order",
                hint="order by a field of it",
            )
        if not isinstance(each.expression, Constant):
            keys.setdefault(each.expression, (each.descending, each.nulls_first))
    if distinct and not all(_text_of(key, value) for key in keys):
        raise SchemaError("a list of DISTINCT values is ordered by the values", expected="ORDER BY of the value itself")
    directions = (*keys.values(), last)
    return (value, *keys), () if directions == ((False, True),) else directions


def _text_of(key: Expression, value: Expression) -> bool:
    """Return whether a value is the text of a key that no other key has."""
    # Two instants may be one local time.
    exact = not patypes.is_floating(key.type) and not patypes.is_timestamp(key.type)
    return exact and isinstance(value, Call) and value.function == "cast" and value.arguments == (key,)


def _checked(function: str, arguments: Sequence[Expression]) -> Sequence[Expression]:
    """Return the arguments of a percentile or mode without those that do not change an exact result."""
    for each in arguments[1:]:
        if not isinstance(each, Constant) or each.value is None:
            raise SchemaError(f"{each} in {function.upper()} is not a literal", hint="write it as a literal")
    if function == "mode":
        if not all(patypes.is_boolean(each.type) for each in arguments[1:]):
            raise SchemaError("the second argument of MODE is TRUE or FALSE", expected="MODE(x)")
        return arguments[:1]
    share, *accuracy = map(_number, arguments[1:])
    if share is None or not 0 <= share <= 1:
        raise SchemaError(f"{arguments[1]} is not between 0 and 1", hint="the median is PERCENTILE(x, 0.5)")
    if any(each is None or each < 1 for each in accuracy):
        raise SchemaError(f"an accuracy of {arguments[2]} is not possible", expected="a whole number above 0")
    return arguments[:2]


def _check_error(argument: Expression) -> None:
    value = _number(argument)
    least, most = _ERRORS
    if value is None or not least <= value <= most:
        raise SchemaError(
            f"the error of APPROX_COUNT_DISTINCT is {argument}",
            expected=f"a relative standard deviation from {least} to {most}",
            hint=f"leave it out for {_ERROR}; COUNT(DISTINCT x) has no error",
        )


def error_of(each: Aggregation) -> float:
    """Return the relative standard deviation allowed for an APPROX_COUNT_DISTINCT."""
    given = _number(each.arguments[1]) if len(each.arguments) == 2 else None
    return _ERROR if given is None else given


def share_of(each: Aggregation) -> float:
    """Return the share of a percentile; that of the median for other functions."""
    percentile = each.function in {"percentile", "percentile_disc", "approx_percentile"}
    return (_number(each.arguments[1]) if percentile else None) or (0.0 if percentile else 0.5)


def _number(expression: Expression) -> float | None:
    if not isinstance(expression, Constant) or isinstance(expression.value, bool):
        return None
    return float(expression.value) if isinstance(expression.value, int | float | Decimal) else None
