"""How long steps over newest rows remember the times of deleted keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..conf.arguments import duration_argument
from ..conf.errors import OptionError
from ..plan.promises import check_promised
from .joins.within import unit_of
from .keyed import KeyedRows

__all__ = ["retention_of"]


def retention_of(what: str, stream: KeyedRows, value: Any) -> int | None:
    """Return how far the watermark has to pass a deletion, in units of the time column.

    Parameters
    ----------
    what
        The step, as its user calls it.
    stream
    value
        What the user gives; None for never.

    Returns
    -------
    int or None
        None if deletions are never forgotten.

    Raises
    ------
    OptionError
        It is no duration, or the stream has no event time or no watermark.
    """
    if value is None:
        return None
    if stream.event_time is None:
        raise OptionError(
            f"{what} with tombstone_retention={value!r} over a stream without an event time",
            expected="an event time and a watermark: later arrivals are newer otherwise, however old",
            hint="name the column: read(…, event_time=…); or leave tombstone_retention out",
        )
    from pyspark.sql.pandas.types import to_arrow_schema

    kind = to_arrow_schema(stream.schema, timezone="UTC").field(stream.event_time).type
    check_promised(stream.plan, f"{what} with tombstone_retention")
    if pa.types.is_integer(kind):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 61:
            raise OptionError(
                f"tombstone_retention={value!r}, and {stream.event_time} holds numbers",
                expected="a whole number in their unit, not negative",
                hint="give for example 604800000 for 7 days of milliseconds",
            )
        return value
    unit_us = unit_of(stream.event_time, kind, None)
    assert unit_us is not None
    return -(-duration_argument("tombstone_retention", value, such_as="'7 days'") // unit_us)
