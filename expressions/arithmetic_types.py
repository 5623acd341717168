"""Types of arithmetic: numbers, decimals with precision and scale, and times with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from .coercion import cast, implicit, misfit, numbers_of_both
from .intervals import of_months, times
from .kinds import (
    DATE,
    DOUBLE,
    DURATION,
    INT,
    LONG,
    MAX_PRECISION,
    MONTHS,
    NULL,
    TEXT,
    TIMESTAMP,
    adjusted_decimal,
    is_decimal,
    is_integral,
    is_number,
    is_time,
)
from .nodes import Call, Constant, Days, Expression


def _binary(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 2:
        raise misfit(function, arguments, "two numbers")
    left, right = arguments
    timed = _with_times(function, left, right)
    if timed is not None:
        return timed
    both = numbers_of_both(left, right)
    if both is None:
        text = left.type == right.type == TEXT
        raise misfit(function, arguments, "two numbers", "cast the text to a number" if text else "")
    operation = function.removeprefix("try_")
    if operation == "divide" and NULL in (left.type, right.type) and not is_decimal(left.type):
        both = cast(left, DOUBLE), cast(right, DOUBLE)
    left, right = both
    if operation == "div":
        return _whole_division(function, left, right)
    if is_decimal(left.type):
        return Call(function, (left, right), _decimal_result(operation, left.type, right.type))
    if operation == "divide":
        return Call(function, (cast(left, DOUBLE), cast(right, DOUBLE)), DOUBLE)
    return Call(function, (left, right), left.type)


def added(total: Expression) -> Expression:
    """Flatten a sum of numbers of one type to ``add_all``; decimals stay, since each further sum has more digits."""
    if not isinstance(total, Call) or total.function != "add" or is_decimal(total.type):
        return total
    before, last = total.arguments
    if not isinstance(before, Call) or before.function not in ("add", "add_all"):
        return total
    if {each.type for each in (*before.arguments[:2], before, last)} != {total.type}:
        return total
    return Call("add_all", (*before.arguments, last), total.type)


def _whole_division(function: str, left: Expression, right: Expression) -> Expression:
    if is_decimal(left.type):
        return Call(function, (left, right), LONG)
    if not is_integral(left.type):
        raise misfit(function, (left, right), "whole numbers or decimals", "use / or floor(a / b)")
    return Call(function, (cast(left, LONG), cast(right, LONG)), LONG)


def _decimal_result(operation: str, left: pa.Decimal128Type, right: pa.Decimal128Type) -> pa.Decimal128Type:
    scale = max(left.scale, right.scale)
    wholes = left.precision - left.scale, right.precision - right.scale
    if operation == "multiply":
        return adjusted_decimal(left.precision + right.precision + 1, left.scale + right.scale)
    if operation == "divide":
        scale = max(6, left.scale + right.precision + 1)
        return adjusted_decimal(wholes[0] + right.scale + scale, scale)
    if operation in ("mod", "pmod"):
        return adjusted_decimal(min(wholes) + scale, scale)
    return adjusted_decimal(max(wholes) + scale + 1, scale)


def _with_times(function: str, left: Expression, right: Expression) -> Expression | None:
    """Return the sum or difference of times, dates, days and intervals; None if the operands are others."""
    kinds = left.type, right.type
    if function == "add" and is_time(right.type) and not is_time(left.type):
        left, right = right, left
    if function in ("add", "subtract") and is_time(left.type):
        return _on_time(function, left, right)
    if DURATION in kinds:
        return _with_duration(function, left, right)
    made = of_months(function, left, right)
    if made is not None:
        return made
    if {DATE, TIMESTAMP, MONTHS} & set(kinds):
        raise misfit(function, (left, right), "numbers, a time and an interval, or two times")
    return None


def _on_time(function: str, time: Expression, other: Expression) -> Expression:
    if other.type in (DURATION, MONTHS):
        if time.type == DATE and not _whole_days(other):
            time = cast(time, TIMESTAMP)
        return Call(f"{function}_interval", (time, other), time.type)
    if is_integral(other.type) and time.type == DATE:
        days = implicit(other, INT)
        assert days is not None
        return Call("date_add" if function == "add" else "date_sub", (time, days), DATE)
    if function == "subtract" and (is_time(other.type) or other.type == TEXT):
        dtype = DATE if time.type == DATE and other.type in (DATE, TEXT) else TIMESTAMP
        both = implicit(time, dtype), implicit(other, dtype)
        return Call("subtract_times", tuple(each for each in both if each is not None), DURATION)
    raise misfit(
        function,
        (time, other),
        "an interval, a number of days to add to a DATE, or another time to subtract",
        "write INTERVAL '5' MINUTES",
    )


def _whole_days(interval: Expression) -> bool:
    """Return whether a DATE plus this interval is a DATE, as with Spark's types DAY and MONTH."""
    if interval.type == MONTHS:
        return not (isinstance(interval, Constant) and interval.value is not None and interval.value[2])
    if isinstance(interval, Constant):
        return isinstance(interval.value, Days)
    if not isinstance(interval, Call):
        return False
    if interval.function == "subtract_times":
        return all(each.type == DATE for each in interval.arguments)
    if interval.function == "case":
        values = [*interval.arguments[1::2], interval.arguments[-1]]
    elif interval.function in ("add", "subtract", "negate", "coalesce", "greatest", "least"):
        values = list(interval.arguments)
    else:
        return False
    return all(_whole_days(each) for each in values if not (isinstance(each, Constant) and each.value is None))


def _with_duration(function: str, left: Expression, right: Expression) -> Expression:
    kinds = {left.type, right.type}
    if function in ("add", "subtract") and kinds <= {DURATION, NULL}:
        both = implicit(left, DURATION), implicit(right, DURATION)
        return Call(function, tuple(each for each in both if each is not None), DURATION)
    made = times(function, left, right)
    if made is not None:
        return made
    raise misfit(
        function, (left, right), "two intervals to add or subtract, or an interval to multiply or divide by a number"
    )


def _unary(function: str, arguments: Sequence[Expression]) -> Expression:
    name = {"negative": "negate"}.get(function, function)
    value = arguments[0] if len(arguments) == 1 else None
    months = of_months("multiply", Constant(-1, INT), value) if value is not None and name == "negate" else None
    if months is not None:
        return months
    if value is not None and value.type in (TEXT, NULL):
        value = implicit(value, DOUBLE)
    if value is None or not (is_number(value.type) or (value.type == DURATION and name != "sign")):
        raise misfit(function, arguments, "a number")
    return value if name == "positive" else Call(name, (value,), value.type)


def _rounded(function: str, arguments: Sequence[Expression]) -> Expression:
    digits = arguments[1] if len(arguments) == 2 else Constant(0, INT)
    value = arguments[0] if arguments else digits
    if value.type in (TEXT, NULL):
        value = implicit(value, DOUBLE) or value
    right_kinds = 1 <= len(arguments) <= 2 and is_number(value.type)
    if not right_kinds or not isinstance(digits, Constant) or not isinstance(digits.value, int):
        raise misfit(function, arguments, "a number, and a constant number of digits after the point")
    dtype = value.type
    places = max(-MAX_PRECISION, min(int(digits.value), 400))
    if is_decimal(dtype):
        whole = dtype.precision - dtype.scale + 1
        if places < 0:
            dtype = pa.decimal128(min(max(whole, 1 - places), MAX_PRECISION), 0)
        else:
            scale = min(dtype.scale, places)
            dtype = pa.decimal128(min(whole + scale, MAX_PRECISION), scale)
    return Call(function, (value, Constant(places, INT)), dtype)


def _whole(function: str, arguments: Sequence[Expression]) -> Expression:
    name = {"ceiling": "ceil"}.get(function, function)
    value = arguments[0] if len(arguments) == 1 else None
    if value is not None and value.type in (TEXT, NULL):
        value = implicit(value, DOUBLE)
    if value is None or not is_number(value.type):
        raise misfit(function, arguments, "one number")
    if is_integral(value.type):
        return cast(value, LONG)
    if is_decimal(value.type):
        dtype = value.type
        if dtype.scale:
            dtype = pa.decimal128(min(dtype.precision - dtype.scale + 1, MAX_PRECISION), 0)
        return value if dtype == value.type else Call(name, (value,), dtype)
    return Call(name, (cast(value, DOUBLE),), LONG)


def _on_doubles(function: str, arguments: Sequence[Expression]) -> Expression:
    name, count = _ON_DOUBLES[function]
    made = [implicit(each, DOUBLE) for each in arguments]
    if None in made or len(made) != count:
        raise misfit(function, arguments, "a number" if count == 1 else "two numbers")
    return Call(name, tuple(each for each in made if each is not None), DOUBLE)


_ON_DOUBLES = {
    "sign": ("sign", 1),
    "signum": ("sign", 1),
    "sqrt": ("sqrt", 1),
    "exp": ("exp", 1),
    "ln": ("ln", 1),
    "log10": ("log10", 1),
    "log2": ("log2", 1),
    "power": ("power", 2),
    "pow": ("power", 2),
}


def _tried(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return a ``try_`` form. Except for numbers, it is null for errors in the operands too, as in Spark."""
    if all(is_number(each.type) for each in arguments):
        return _binary(function, arguments)
    found = _binary(function.removeprefix("try_"), arguments)
    return Call("try", (found,), found.type)


ARITHMETIC: Mapping[str, Callable[[str, Sequence[Expression]], Expression]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "div", "mod", "pmod"), _binary),
    **dict.fromkeys(("try_add", "try_subtract", "try_multiply", "try_divide", "try_mod"), _tried),
    **dict.fromkeys(("negate", "negative", "positive", "abs"), _unary),
    **dict.fromkeys(("round", "bround"), _rounded),
    **dict.fromkeys(("floor", "ceil", "ceiling"), _whole),
    **dict.fromkeys(_ON_DOUBLES, _on_doubles),
}
