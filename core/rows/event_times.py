"""Event times of any type as microseconds since the epoch, the one unit in which times are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import OptionError, SchemaError
from .system_column import TIMESTAMP
from .time_zones import in_utc, local_micros

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "EPOCH_UNITS",
    "NO_TIME",
    "bound_us",
    "check_time_type",
    "check_time_zone",
    "event_time_us",
    "is_pattern",
    "recorded_bound",
    "time_scalar",
    "times_as",
]

Int64s = npt.NDArray[np.int64]

NO_TIME = int(np.iinfo(np.int64).min)
"""The int64 for a null or unreadable time."""

# Units per second, and microseconds per unit where that is whole.
EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
_DAY_US = 86_400_000_000
# Spark's TIMESTAMP ends with the year 9999, and so do Python's times: what lies beyond could be neither shown nor
# committed.
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999


def is_pattern(time_format: str | None) -> bool:
    """Return whether the format is a strptime pattern, so that the column holds text to parse."""
    return time_format is not None and "%" in time_format


def check_time_type(name: str, dtype: pa.DataType, time_format: str | None, option: str = "timeFormat") -> None:
    """Refuse a time column whose type does not fit its format; `option` is the format's option, for the message."""
    number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype)
    if time_format is not None and time_format not in EPOCH_UNITS and not is_pattern(time_format):
        raise SchemaError(
            f"{option}={time_format!r} is unknown",
            expected="a strptime pattern such as '%Y-%m-%d %H:%M:%S', or one of " + ", ".join(EPOCH_UNITS),
        )
    if number and time_format not in EPOCH_UNITS:
        raise SchemaError(
            f"the time column {name!r} holds numbers ({dtype}) and {option} is {time_format!r}",
            expected="one of " + ", ".join(EPOCH_UNITS),
            hint=f"say what the numbers count, for example {option}=epoch_ms",
        )
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    if not (number or text or pa.types.is_timestamp(dtype) or pa.types.is_date(dtype)):
        raise SchemaError(
            f"the time column {name!r} is of type {dtype}",
            expected=f"a timestamp, a date, text or a number with {option}",
        )


def check_time_zone(option: str, time_zone: str) -> None:
    """Refuse an unknown time zone before the first row comes; `option` is its option, for the message."""
    if not isinstance(time_zone, str):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"{option}={time_zone!r}", expected="an IANA name such as 'Europe/Paris', or UTC")
    if _is_utc(time_zone):  # pyarrow's arrays import pandas, which a process that only plans has no other use for
        return
    try:
        _in_utc(pa.chunked_array([pa.array([0], pa.timestamp("us"))]), time_zone)
    except OptionError as error:
        raise OptionError(
            f"{option}={time_zone!r}: {error.problem}", expected=error.expected, hint=error.hint
        ) from None


def event_time_us(column: pa.Array | pa.ChunkedArray, time_format: str | None, time_zone: str) -> Int64s:
    """Return the time of each row in microseconds; :data:`NO_TIME` if null, unreadable or outside the years 1 to 9999.

    Numbers need one of :data:`EPOCH_UNITS` as `time_format`. Text is ISO 8601 unless `time_format` is a strptime
    pattern. Times without a zone are in `time_zone`, where a date is the instant at which its day begins.
    """
    array = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    times = _micros(array, time_format, time_zone)
    usable = (times >= _FIRST_US) & (times <= _LAST_US)
    return times if usable.all() else np.where(usable, times, NO_TIME)


def time_scalar(bound_us: int, dtype: pa.DataType, time_format: str | None, time_zone: str = "UTC") -> pa.Scalar:
    """Return a bound in the time column's type, never later than `bound_us`, so that punctuation stays true."""
    return times_as(np.array([bound_us]), dtype, time_format, time_zone)[0]


def times_as(times_us: Int64s, dtype: pa.DataType, time_format: str | None, time_zone: str = "UTC") -> pa.Array:
    """Return times in the time column's type, rounded down: the inverse of :func:`event_time_us`."""
    times = pa.array(times_us, mask=times_us == NO_TIME)
    if pa.types.is_date(dtype):
        return pa.array(_days(times_us, time_zone), mask=times_us == NO_TIME).cast(dtype)
    units = EPOCH_UNITS[time_format or "epoch_us"] if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) else 0
    if pa.types.is_floating(dtype):
        return pa.array(_floats(times_us, units, dtype.to_pandas_dtype()), dtype, mask=times_us == NO_TIME)
    if units > 1_000_000:
        return pc.multiply(times, units // 1_000_000).cast(dtype)
    if units:
        return pa.array(times_us // (1_000_000 // units), mask=times_us == NO_TIME).cast(dtype)
    return times.cast(TIMESTAMP).cast(dtype)


def bound_us(bound: str | float, dtype: pa.DataType, time_format: str | None, time_zone: str) -> int:
    """Return a bound from a commit's record in microseconds, converted as :func:`event_time_us` converts times."""
    return int(event_time_us(recorded_bound(bound, dtype), time_format, time_zone)[0])


def recorded_bound(bound: str | float, dtype: pa.DataType) -> pa.Array:
    """Return a bound from a commit's record (ISO text or a number) as an array of one time."""
    if not isinstance(bound, str):
        return pa.array([bound]).cast(dtype)
    column = pa.array([bound.removesuffix("Z")]).cast(pa.date32() if pa.types.is_date(dtype) else pa.timestamp("us"))
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        column = pc.assume_timezone(column, "UTC")
    return column


def _filled(array: pa.ChunkedArray) -> Int64s:
    return _from_integers(array, f"epoch_{array.type.unit}")


def _is_utc(time_zone: str) -> bool:
    return time_zone.upper() in ("UTC", "GMT", "Z")


def _in_utc(array: pa.ChunkedArray, time_zone: str) -> pa.ChunkedArray:
    if array.type.tz is not None or _is_utc(time_zone):
        return array
    return in_utc(array, time_zone)


def _micros(array: pa.ChunkedArray, time_format: str | None, time_zone: str) -> Int64s:
    dtype = array.type
    if pa.types.is_floating(dtype):
        return _from_floats(array.to_numpy(), time_format)
    if pa.types.is_integer(dtype):
        return _from_integers(array, time_format)
    if pa.types.is_date(dtype):
        days = _numbers(pc.cast(pc.cast(array, pa.date32()), pa.int32()))
        midnights = _multiplied(days, _DAY_US)
        if _is_utc(time_zone):
            return midnights
        usable = (midnights >= _FIRST_US) & (midnights <= _LAST_US)
        array = pa.chunked_array([pa.array(midnights, mask=~usable).cast(pa.timestamp("us"))])
        return _filled(_in_utc(array, time_zone))
    if pa.types.is_timestamp(dtype):
        return _filled(_in_utc(array, time_zone))
    return _filled(_parse_text(array, time_format, time_zone))


def _days(times_us: Int64s, time_zone: str) -> npt.NDArray[np.int32]:
    """Return the local day of each instant."""
    if not _is_utc(time_zone):
        usable = (times_us >= _FIRST_US) & (times_us <= _LAST_US)
        times_us = times_us.copy()
        times_us[usable] = local_micros(times_us[usable], time_zone)
    return (times_us // _DAY_US).astype(np.int32)


def _floats(times_us: Int64s, units: int, kind: type[np.floating]) -> npt.NDArray[np.floating]:
    """Return instants as floats: for each the least float that represents it, or the float below."""
    exact = times_us.astype(np.float64) * units / 1e6
    if kind is np.float64:
        return exact
    with np.errstate(over="ignore"):
        near = exact.astype(kind)
    return np.where(near > exact, np.nextafter(near, kind(-np.inf)), near)


def _from_floats(values: npt.NDArray[np.floating], time_format: str | None) -> Int64s:
    """Return the last microsecond whose float is not beyond the value: the inverse of :func:`_floats`.

    Rounding to the nearest microsecond would put a row just before a bound on the wrong side of it.
    """
    units = EPOCH_UNITS[time_format or "epoch_us"]
    exact = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        micros = np.floor(exact / units * 1e6 if units > 1_000_000 else exact * (1e6 / units))
        usable = np.isfinite(micros) & (np.abs(micros) < 9e18)
        exact, micros = exact[usable], micros[usable]
        micros += (micros + 1) * units / 1e6 <= exact
        micros -= micros * units / 1e6 > exact
    result = np.full(len(values), NO_TIME, dtype=np.int64)
    result[usable] = micros.astype(np.int64)
    return result


def _from_integers(array: pa.ChunkedArray, time_format: str | None) -> Int64s:
    per_second = EPOCH_UNITS[time_format or "epoch_us"]
    values = _numbers(array)
    if per_second == 1_000_000:
        return values
    if per_second > 1_000_000:
        return np.where(values == NO_TIME, NO_TIME, values // (per_second // 1_000_000))
    return _multiplied(values, 1_000_000 // per_second)


def _numbers(array: pa.ChunkedArray) -> Int64s:
    return pc.fill_null(pc.cast(array, pa.int64()), NO_TIME).to_numpy()


def _multiplied(values: Int64s, factor: int) -> Int64s:
    """Return the values times `factor`; a product beyond int64 becomes :data:`NO_TIME`, not another time."""
    limit = np.iinfo(np.int64).max // factor
    return np.where((values > limit) | (values < -limit), NO_TIME, values * factor)


def _parse_text(array: pa.ChunkedArray, time_format: str | None, time_zone: str) -> pa.ChunkedArray:
    import polars as pl

    # Polars reads offsets and fractions that Arrow's strptime does not; a value that does not fit becomes null, not an
    # error.
    series = pl.Series(array.cast(pa.string()))
    zoned = bool(time_format and "%z" in time_format)
    if time_format is not None:
        parsed = series.str.to_datetime(time_format, time_unit="us", strict=False, ambiguous="earliest")
        text = parsed.dt.convert_time_zone("UTC").to_arrow() if zoned else parsed.to_arrow()
        return _in_utc(pa.chunked_array([text]), time_zone)
    found = _parse_iso(series, time_zone)
    missed = pc.and_(pc.is_null(found), pa.chunked_array([series.is_not_null().to_arrow()]))
    if not pc.any(missed).as_py():
        return found
    # Only what the quick way cannot read is looked at for a part that ISO 8601 lets one leave out.
    whole = series
    for pattern, meant in _SHORT:
        whole = whole.str.replace(pattern, meant)
    return pc.coalesce(found, _parse_iso(whole, time_zone))


# A day alone, a time without seconds, a zone without minutes.
_SHORT = (
    (r"^(\d{4}-\d{2}-\d{2})$", "${1}T00:00:00"),
    (r"(?i)^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2})(z|[+-]\d{2}(?::?\d{2})?)?$", "${1}:00${2}"),
    (r"(?i)^(\d{4}-\d{2}-\d{2}[T ].*[+-]\d{2})$", "${1}:00"),
)


def _parse_iso(series: pl.Series, time_zone: str) -> pa.ChunkedArray:
    has_zone = series.str.contains(r"(?i)[t ].*(z|[+-]\d{2}:?\d{2})$")
    cleaned = series.str.replace(" ", "T", literal=True)
    with_zone = cleaned.set(~has_zone, None).str.to_datetime("%+", time_unit="us", strict=False, time_zone="UTC")
    naive = cleaned.set(has_zone, None).str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    local = pc.cast(_in_utc(pa.chunked_array([naive.to_arrow()]), time_zone), TIMESTAMP)
    return pc.coalesce(pa.chunked_array([with_zone.to_arrow()]).cast(TIMESTAMP), local)
