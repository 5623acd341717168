"""Growth of relations: rows that leave, columns with ever new values, and conditions that bound a join."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import pyarrow.types as patypes

from ..expressions.nodes import Call, Constant, Expression, Field, conjuncts
from ..expressions.nodes import walk as walk_parts
from .nodes import Changes, Join, Node, Stream, walk

__all__ = ["Growth", "Partners", "goes_on", "never_changes", "partners_of"]

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
_CLOCKS_SET_US = 86_400_000_000


@dataclass(frozen=True)
class Growth:
    """The known properties of a relation's size over time."""

    grows: bool = False  # Rows come forever and stay.
    retracts: bool = True  # Rows leave.
    static: bool = False  # The relation never changes.
    times: frozenset[str] = frozenset()  # Columns with ever new values, such as an event time.
    # Columns that are an event time: for how many µs after it a row may still come.
    clocks: Mapping[str, int] = field(default_factory=dict[str, int])
    stay: int | None = None  # For how many µs after its time a row stays at most; None if unknown.
    source: Node | None = None  # If it grows: the window that lets no row leave.


def goes_on(expression: Expression, times: frozenset[str]) -> bool:
    """Return whether the expression has ever new values as time passes."""
    if isinstance(expression, Field):
        return expression.name in times
    if isinstance(expression, Constant) or patypes.is_boolean(expression.type):
        return False
    if expression.function in _CYCLIC:
        return False
    return any(goes_on(each, times) for each in expression.arguments)


def never_changes(node: Node) -> bool:
    """Return whether a relation reads only stored relations, and so never changes."""
    return all(each.static if isinstance(each, Stream) else not isinstance(each, Changes) for each in walk(node))


def _moved(expression: Expression) -> tuple[str, int] | None:
    """Return a column and the µs added to it, if the expression is no more than that."""
    if isinstance(expression, Field):
        return expression.name, 0
    if not isinstance(expression, Call):
        return None
    if expression.function == "cast" and expression.arguments[0].type == expression.type:
        return _moved(expression.arguments[0])
    function = expression.function.removesuffix("_in_zone")
    adds = function in {"add", "add_interval"}
    if not (adds or function in {"subtract", "subtract_interval"}) or not 2 <= len(expression.arguments) <= 3:
        return None
    one, other = expression.arguments[:2]
    if isinstance(one, Constant) and adds:
        one, other = other, one
    inner = _moved(one)
    if inner is None or not isinstance(other, Constant) or not isinstance(other.value, timedelta):
        return None
    length = other.value // timedelta(microseconds=1)
    return inner[0], inner[1] + (length if adds else -length)


class Partners(NamedTuple):
    """The time range of a row's join partners."""

    column: str  # The row's time.
    after: int  # By how many µs the partner's time may be later.


def partners_of(join: Join, left: Collection[str], right: Collection[str]) -> tuple[Partners | None, Partners | None]:
    """Return the time ranges of partners of a left and a right row; ``left`` and ``right`` are the event times."""
    of_left: Partners | None = None
    of_right: Partners | None = None

    def sooner(one: Partners | None, column: str, after: int) -> Partners:
        return Partners(column, after) if one is None or after < one.after else one

    for low, high, bound in _differences(join):
        # low − high ≤ bound
        if low in right and high in left:
            of_left = sooner(of_left, high, bound)
        elif low in left and high in right:
            of_right = sooner(of_right, high, bound)
    return of_left, of_right


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
    first, second = _moved(one), _moved(other)
    if first is None or second is None:
        return
    more = _CLOCKS_SET_US * sum(
        isinstance(each, Call) and each.function.endswith("_in_zone")
        for side in (one, other)
        for each in walk_parts(side)
    )
    if function in {"le", "lt", "eq"}:
        yield first[0], second[0], second[1] - first[1] + more
    if function in {"ge", "gt", "eq"}:
        yield second[0], first[0], first[1] - second[1] + more
