"""The retention of rows, and of the times of deleted keys, in steps over newest rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..conf.arguments import duration_argument
from ..conf.errors import OptionError
from ..plan.promises import check_promised
from .joins.within import unit_of
from .keyed import KeyedRows

__all__ = ["TimeToLive", "of_both", "time_span"]

TimeToLive = str | int | tuple[str | int | None, str | int | None] | None
"""The lifetime of rows: a duration for both sides of a join, or a pair."""


def of_both(ttl: Any) -> tuple[Any, Any]:
    """Return the time to live of the left and of the right; raise OptionError for a list of another length than two."""
    if not isinstance(ttl, tuple | list):
        return ttl, ttl
    if len(ttl) != 2:
        raise OptionError(
            f"ttl={ttl!r}",
            expected="a duration, or a pair for the left and the right",
            hint='give ("10 minutes", None)',
        )
    return ttl[0], ttl[1]


def time_span(what: str, argument: str, stream: KeyedRows, value: Any) -> int | None:
    """Return how far the watermark has to pass a row, in units of the time column; None for never.

    `what` and `argument` are the names of the step and its argument, for errors. Raise OptionError if `value` is no
    duration, or the stream has no event time or no watermark.
    """
    if value is None:
        return None
    if stream.event_time is None:
        raise OptionError(
            f"{what} with {argument}={value!r} over a stream without an event time",
            expected="an event time and a watermark: later arrivals are newer otherwise, however old",
            hint=f"name the column: read(…, event_time=…); or leave {argument} out",
        )
    from pyspark.sql.pandas.types import to_arrow_schema

    kind = to_arrow_schema(stream.schema, timezone="UTC").field(stream.event_time).type
    check_promised(stream.plan, f"{what} with {argument}")
    if pa.types.is_integer(kind):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 61:
            raise OptionError(
                f"{argument}={value!r}, and {stream.event_time} holds numbers",
                expected="a whole number in their unit, not negative",
                hint="give for example 604800000 for 7 days of milliseconds",
            )
        return value
    unit_us = unit_of(stream.event_time, kind, None)
    assert unit_us is not None
    return -(-duration_argument(argument, value, such_as="'7 days'") // unit_us)
