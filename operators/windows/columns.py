"""Conversion between Arrow columns and the numbers over which windows are defined."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError, SchemaError
from ...core.rows.event_times import NO_TIME, event_time_us
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.system_column import TIMESTAMP

__all__ = ["ends_column", "windowing_values"]


def windowing_values(name: str, column: pa.Array | pa.ChunkedArray, time_zone: str = "UTC") -> Int64s:
    """Return the windowing attribute of each row: whole numbers, or microseconds since the epoch.

    Finer timestamps are rounded down. `time_zone` is that of timestamps and dates without one; `name` is for messages.
    """
    array = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    if array.null_count:
        raise MalformedRowError(
            f"{array.null_count} of {len(array)} rows have no value in {name!r}, so they are in no window",
            expected="a value in each row",
            hint="take such rows out before the window, and count them",
        )
    dtype = array.type
    try:
        if pa.types.is_integer(dtype):
            return pc.cast(array, pa.int64()).to_numpy()
        if pa.types.is_timestamp(dtype) and dtype.unit == "ns":
            array = pc.floor_temporal(array, unit="microsecond")
        if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
            zone = dtype.tz if pa.types.is_timestamp(dtype) else None
            # A cast that refuses what overflows.
            times = event_time_us(pc.cast(array, pa.timestamp("us", zone)), None, time_zone)
            if (times == NO_TIME).any():
                raise pa.ArrowInvalid("it is before the year 1 or after the year 9999")  # noqa: TRY301
            return times
    except pa.ArrowInvalid as error:
        raise MalformedRowError(
            f"a value of {name!r} ({dtype}) does not fit: {error}", expected=f"values from {LOWEST} to {HIGHEST}"
        ) from error
    raise SchemaError(
        f"windows over the column {name!r} of type {dtype}",
        expected="timestamps, dates or whole numbers",
        hint="cast it; a float has no exact window ends",
    )


def ends_column(ends: Int64s, dtype: pa.DataType) -> pa.Array:
    """Return window ends as timestamps for windows over timestamps or dates, else as int64; null for no end."""
    values = pa.array(ends, pa.int64(), mask=(ends == LOWEST) | (ends == HIGHEST))
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        return values.cast(TIMESTAMP)
    return values
