"""Expressions of times: whether they have an end, for how long they have one value, and which rows they match."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

import pyarrow.types as patypes

from ....expressions.nodes import Call, Constant, Expression, Field, conjuncts
from ....expressions.nodes import walk as walk_parts
from .nodes import Join

# Parts of a time that come again: they have few values.
_CYCLIC = frozenset(
    [
        "hour",
        "minute",
        "second",
        "month",
        "quarter",
        "day",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "weekday",
        "weekofyear",
        "week",
        "dayname",
        "monthname",
    ]
)

# A day of a time zone is longer or shorter than 24 hours by what its clocks are set: by a day at most, where a zone
# crosses the date line.
CLOCKS_SET_US = 86_400_000_000

_DAY_US = 86_400_000_000
_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    **dict.fromkeys(("DAY", "DD"), _DAY_US),
    "WEEK": 7 * _DAY_US,
    **dict.fromkeys(("MONTH", "MM", "MON"), 31 * _DAY_US),
    "QUARTER": 92 * _DAY_US,
    **dict.fromkeys(("YEAR", "YYYY", "YY"), 366 * _DAY_US),
}


def goes_on(expression: Expression, times: frozenset[str]) -> bool:
    """Return whether the expression has ever new values as time passes."""
    if isinstance(expression, Field):
        return expression.name in times
    if isinstance(expression, Constant) or patypes.is_boolean(expression.type):
        return False
    if expression.function in _CYCLIC:
        return False
    return any(goes_on(each, times) for each in expression.arguments)


def moved(expression: Expression) -> tuple[str, int] | None:
    """Return a column and the µs added to it, if the expression is no more than that."""
    if isinstance(expression, Field):
        return expression.name, 0
    if not isinstance(expression, Call):
        return None
    if expression.function == "cast" and expression.arguments[0].type == expression.type:
        return moved(expression.arguments[0])
    function = expression.function.removesuffix("_in_zone")
    adds = function in {"add", "add_interval"}
    if not (adds or function in {"subtract", "subtract_interval"}) or not 2 <= len(expression.arguments) <= 3:
        return None
    one, other = expression.arguments[:2]
    if isinstance(one, Constant) and adds:
        one, other = other, one
    inner = moved(one)
    if inner is None or not isinstance(other, Constant) or not isinstance(other.value, timedelta):
        return None
    length = other.value // timedelta(microseconds=1)
    return inner[0], inner[1] + (length if adds else -length)


def latest_of(expression: Expression) -> tuple[str, int] | None:
    """Return a column and the µs that the expression, or the bound of a window, is later at most."""
    if not isinstance(expression, Call) or expression.function != "window_bound":
        return moved(expression)
    time, _, shift = expression.arguments
    inner = latest_of(time)
    return None if inner is None or not isinstance(shift, Constant) else (inner[0], inner[1] + shift.value)


def clock_of_bound(expression: Expression, clocks: Mapping[str, int]) -> int | None:
    """Return for how many µs after the bound of a window, and after the first row with it, a row may still come.

    It is None for other expressions than a column and a bound, and where this is not limited.
    """
    if isinstance(expression, Field):
        return clocks.get(expression.name)
    if not isinstance(expression, Call):
        return None
    inner, shift = clock_of_bound(expression.arguments[0], clocks), expression.arguments[-1]
    if expression.function == "window_bound" and isinstance(shift, Constant):
        length = expression.arguments[1]
        return None if inner is None or not isinstance(length, Constant) else inner + length.value - min(shift.value, 0)
    if expression.function == "sequence" and inner is not None:  # the ends of the windows that hold a row
        last = latest_of(expression.arguments[1])
        return None if last is None or last[0] not in clocks else clocks[last[0]] + last[1]
    return None


def period_of(expression: Expression, clocks: Mapping[str, int]) -> int | None:
    """Return for how many µs after a time rows with the same value may still come; None if that is not bounded.

    ``clocks`` are columns of times, and for how many µs after each a row may still come.
    """
    if isinstance(expression, Field):
        return clocks.get(expression.name)
    if isinstance(expression, Constant):
        return None
    shift = moved(expression)
    if shift is not None:
        return clocks.get(shift[0])
    if expression.function == "window_bound":
        return clock_of_bound(expression, clocks)
    function, arguments = expression.function, expression.arguments
    more = CLOCKS_SET_US if function.endswith(("_in_zone", "local_time")) else 0
    function = function.removesuffix("_in_zone")
    if function in {"date_trunc", "trunc"}:
        unit, time = arguments[:2] if function == "date_trunc" else arguments[1::-1]
        length = _UNITS_US.get(str(unit.value).upper()) if isinstance(unit, Constant) else None
    elif function == "date_format":
        time, length = arguments[0], _length_of_format(arguments[1])
    elif function == "cast" and patypes.is_timestamp(arguments[0].type) and patypes.is_date(expression.type):
        time, length = arguments[0], _DAY_US
    elif function == "local_time" or (function == "cast" and patypes.is_string(expression.type)):
        time, length = arguments[0], 0
    elif function == "year":
        time, length = arguments[0], _UNITS_US["YEAR"]
    else:
        return None
    inner = period_of(time, clocks)
    return None if inner is None or length is None else inner + length + more


def _length_of_format(pattern: Expression) -> int | None:
    """Return the length of the times that a format writes alike, if it writes the year."""
    if not isinstance(pattern, Constant):
        return None
    letters = re.sub("'[^']*'", "", str(pattern.value))
    if "yyyy" not in letters:
        return None
    if "D" in letters or ("M" in letters and "d" in letters):
        return _DAY_US
    return _UNITS_US["MONTH" if "M" in letters else "YEAR"]


class Partners(NamedTuple):
    """The time range of a row's join partners."""

    column: str  # The row's time, or another column that ends its range, such as `expires`.
    after: int  # By how many µs the partner's time may be later.


def partners_of(join: Join, left: Collection[str], right: Collection[str]) -> tuple[Partners | None, Partners | None]:
    """Return the time ranges of partners of a left and a right row; ``left`` and ``right`` are the event times.

    A range that ends after an event time is preferred: the others end where the rows themselves say. ASOF has none, as
    the nearest partner may leave at any time, and another one take its place.
    """
    if join.as_of is not None:
        return None, None

    def soonest(ends: Iterable[Partners], times: Collection[str]) -> Partners | None:
        return min(ends, key=lambda each: (each.column not in times, each.after), default=None)

    # low − high ≤ bound
    found = [*_differences(join)]
    columns = join.left.schema.names, join.right.schema.names
    of_left = (Partners(high, bound) for low, high, bound in found if low in right and high in columns[0])
    of_right = (Partners(high, bound) for low, high, bound in found if low in left and high in columns[1])
    return soonest(of_left, left), soonest(of_right, right)


def _differences(join: Join) -> Iterable[tuple[str, str, int]]:
    for one, other in join.on:
        yield from _difference("eq", one, other)
    for each in conjuncts(join.condition):
        if isinstance(each, Call) and each.function in {"le", "lt", "ge", "gt", "eq"}:
            yield from _difference(each.function, each.arguments[0], each.arguments[1])
        elif isinstance(each, Call) and each.function == "between":
            yield from _difference("ge", each.arguments[0], each.arguments[1])
            yield from _difference("le", each.arguments[0], each.arguments[2])


def _difference(function: str, one: Expression, other: Expression) -> Iterable[tuple[str, str, int]]:
    first, second = moved(one), moved(other)
    if first is None or second is None:
        return
    more = CLOCKS_SET_US * sum(
        isinstance(each, Call) and each.function.endswith("_in_zone")
        for side in (one, other)
        for each in walk_parts(side)
    )
    if function in {"le", "lt", "eq"}:
        yield first[0], second[0], second[1] - first[1] + more
    if function in {"ge", "gt", "eq"}:
        yield second[0], first[0], first[1] - second[1] + more
