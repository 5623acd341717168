"""Calls of functions in a query: their arguments, DISTINCT and *, and the functions that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from ..relations.aggregates import is_aggregate
from .places import Text

__all__ = ["Called", "read_call"]

# Functions with another value at each evaluation: a replayed batch would have other rows.
_UNSTEADY = frozenset(
    [
        "current_date",
        "current_timestamp",
        "current_time",
        "localtimestamp",
        "now",
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "unix_timestamp_now",
        "current_user",
        "session_user",
        "user",
        "spark_partition_id",
    ]
)
_NUMBERED = frozenset(
    ["row_number", "rank", "dense_rank", "ntile", "lag", "lead", "percent_rank", "cume_dist", "nth_value"]
)


@dataclass(frozen=True)
class Called:
    """A function call, with the name in lower case. ``COUNT(*)`` has no arguments."""

    name: str
    arguments: Sequence[exp.Expr]
    distinct: bool


def read_call(node: exp.Expr, function: exp.Expr, text: Text) -> Called:
    """Return a call's arguments; errors point at ``node``, which may include FILTER.

    Functions with another value at each evaluation are refused, as a replayed batch would have other rows.
    """
    name = function.this.lower()
    arguments = function.expressions
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
    star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
    if name in _UNSTEADY:
        raise text.error(
            node,
            f"{name.upper()} is another value at each evaluation, so a replayed batch would give other rows",
            hint="use the stream's event time, or a window",
        )
    if name in _NUMBERED:
        raise text.error(
            node, f"{name.upper()} needs OVER", hint="QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n"
        )
    if not is_aggregate(name) and (distinct or star):
        what = "DISTINCT" if distinct else "*"
        raise text.error(node, f"{what} is only for aggregates, and {name.upper()} is none")
    if star and name != "count":
        raise text.error(node, f"{name.upper()}(*) is not possible", hint="name a column")
    return Called(name, [] if star else arguments, distinct)
