"""Event times of any type as microseconds since the epoch, and local times by Python's ``zoneinfo``."""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import OptionError, SchemaError
from .exact_integers import Int64s, Mask
from .system_column import TIMESTAMP
from .text import mapped_type, values_inside
from .time_patterns import time_pattern

if TYPE_CHECKING:
    import polars as pl


# Zones are read by zoneinfo, which alone applies a zone's last rule forever: Arrow stops in 2037, Polars in 2099.
_DAY_S = 86_400
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
# The calendar repeats every 400 years, and rules do once a zone has come to its last one.
_CYCLE_YEARS = 400
_CYCLE_S = 146_097 * _DAY_S
_LAST_RULES = 2400
_YEARS = (1, 9999)


class _Rules(NamedTuple):
    """The offsets of a zone in seconds, and the epoch second from which each is valid."""

    starts: Int64s
    offsets: Int64s


@functools.lru_cache(maxsize=1024)
def zone_named(name: str) -> zoneinfo.ZoneInfo:
    """Return a zone by its IANA name, or raise an OptionError if this machine does not have it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise OptionError(
            f"the time zone {name!r} is unknown here",
            expected="an IANA name such as 'Europe/Paris' or 'UTC'",
            hint="for a fixed offset, give one of the names Etc/GMT-14 to Etc/GMT+12, whose signs are reversed. "
            "If the name is right, install the package tzdata",
        ) from error


def in_utc(array: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Return local times as instants in the same unit; `zone` is an IANA name, or an offset such as ``+02:00``.

    An ambiguous local time is its first instant. A skipped one is the instant of the change.
    """
    per_second = _PER_SECOND[array.type.unit]
    kind = pa.timestamp(array.type.unit, "UTC")
    valid = array.is_valid().to_numpy()
    local = array.cast(pa.int64()).fill_null(0).to_numpy()
    instants = _instants(local, zone, per_second, shifted=False)
    return pa.chunked_array([pa.array(instants, mask=~valid).cast(kind)])


def instants_of(local: Int64s, zone: str, *, shifted: bool = False) -> Int64s:
    """Return local times as instants, both in microseconds since the epoch, as :func:`in_utc` does.

    With `shifted`, a skipped local time is later by the length of the gap, as in Java's ``ZonedDateTime.of``. Without,
    it is the instant of the change, as in ``LocalDate.atStartOfDay``.
    """
    return _instants(local, zone, 1_000_000, shifted=shifted)


def instants_near(local: Int64s, before: Int64s, zone: str) -> Int64s:
    """Return the instants of local times to which the instants `before` were moved, in microseconds.

    An ambiguous local time keeps the offset from before the move if it can, as in Java's ``ZonedDateTime.plusDays``.
    Otherwise the rule is that of :func:`instants_of`, shifted.
    """
    offset = local_micros(before, zone) - before
    kept = local - offset
    return np.where(local_micros(kept, zone) - kept == offset, kept, instants_of(local, zone, shifted=True))


def _instants(local: Int64s, zone: str, per_second: int, *, shifted: bool) -> Int64s:
    rules = _rules_for(local // per_second, zone)
    if len(rules.starts) == 1:
        return local - rules.offsets * per_second
    # An offset holds up to the local time that clocks show at its end, by itself.
    ends = np.maximum.accumulate(rules.starts[1:] + rules.offsets[:-1])
    at = np.searchsorted(ends, local // per_second, "right")
    instants = local - rules.offsets[at] * per_second
    start = rules.starts[at]
    skipped = instants // per_second < start
    if skipped.any():
        later = local - rules.offsets[np.maximum(at - 1, 0)] * per_second if shifted else start * per_second
        instants = np.where(skipped, later, instants)
    return instants


def local_micros(instants: Int64s, zone: str) -> Int64s:
    """Return instants as local times, both in microseconds since the epoch."""
    seconds = instants // 1_000_000
    rules = _rules_for(seconds, zone)
    at = np.searchsorted(rules.starts, seconds, "right") - 1
    return instants + rules.offsets[np.maximum(at, 0)] * 1_000_000


def _rules_for(seconds: Int64s, zone: str) -> _Rules:
    """Return the rules of all years around some times."""
    least, greatest = (int(seconds.min()), int(seconds.max())) if len(seconds) else (0, 0)
    return _rules(zone, _year(least) - 1, _year(greatest) + 1)


def _year(second: int) -> int:
    days = min(max(second // _DAY_S, -800_000), 3_000_000)
    return min(max(int(np.datetime64(days, "D").astype("M8[Y]").astype(np.int64)) + 1970, _YEARS[0]), _YEARS[1])


@functools.lru_cache(maxsize=256)
def _rules(zone: str, least: int, greatest: int) -> _Rules:
    if match := _OFFSET.fullmatch(zone):
        sign, hours, minutes = match.groups()
        offset = (int(hours) * 60 + int(minutes)) * (-60 if sign == "-" else 60)
        return _Rules(np.array([np.iinfo(np.int64).min // 2]), np.array([offset]))
    starts, offsets = [np.iinfo(np.int64).min // 2], [_first_offset(zone, max(least, _YEARS[0]))]
    for year in range(max(least, _YEARS[0]), min(greatest, _YEARS[1]) + 1):
        cycles = max((year - _LAST_RULES) // _CYCLE_YEARS, 0)
        for start, offset in _changes(zone, year - cycles * _CYCLE_YEARS):
            starts.append(start + cycles * _CYCLE_S)
            offsets.append(offset)
    return _Rules(np.array(starts, dtype=np.int64), np.array(offsets, dtype=np.int64))


def _first_offset(zone: str, year: int) -> int:
    return _offset(zone_named(zone), _second(max(year, 2)))


@functools.lru_cache(maxsize=8192)
def _changes(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """Return the instants in a year at which the offset changes, each with the new one."""
    rules, found = zone_named(zone), list[tuple[int, int]]()
    first = _second(max(year, 2))  # in the year 1 local times may be outside of Python's range
    last = _second(year + 1) if year < _YEARS[1] else _second(year) + 364 * _DAY_S
    before = _offset(rules, first)
    for day in range(first, last, _DAY_S):
        after = _offset(rules, min(day + _DAY_S, last))
        if after != before:
            early, late = day, day + _DAY_S
            while late - early > 1:
                middle = (early + late) // 2
                early, late = (early, middle) if _offset(rules, middle) != before else (middle, late)
            found.append((late, after))
            before = after
    return tuple(found)


def _second(year: int) -> int:
    return int((dt.datetime(year, 1, 1, tzinfo=dt.timezone.utc) - _EPOCH).total_seconds())


def _offset(zone: zoneinfo.ZoneInfo, second: int) -> int:
    offset = (_EPOCH + dt.timedelta(seconds=second)).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


NO_TIME = int(np.iinfo(np.int64).min)
"""The int64 for a null or unreadable time."""

# Units per second, and microseconds per unit where that is whole.
EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
_DAY_US = 86_400_000_000
# Spark's TIMESTAMP ends with the year 9999, and so do Python's times: what lies beyond could be neither shown nor
# committed.
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999


class TimeFormat(NamedTuple):
    """The reading of a stream's time column: the options `time_format` and `time_zone` of its source."""

    format: str | None = None  # of numbers and texts
    zone: str = "UTC"  # of dates, and of texts and timestamps without a zone

    def of_column(self, dtype: pa.DataType | None) -> TimeFormat:
        """Return what of it a column of a type needs."""
        if dtype is None or (pa.types.is_timestamp(dtype) and dtype.tz is not None):
            return UTC_TIMES
        if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
            return TimeFormat(None, self.zone)
        return TimeFormat(self.format, self.zone if pa.types.is_string(dtype) else "UTC")

    @property
    def unit(self) -> str:
        """The unit of numbers, in words."""
        return self.format or "an unknown unit"


UTC_TIMES = TimeFormat()
"""The encoding of timestamps with a zone, which need none."""


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
    if time_format is not None and is_pattern(time_format):
        time_pattern(time_format)
    if number and time_format not in EPOCH_UNITS:
        raise SchemaError(
            f"the time column {name!r} holds numbers ({dtype}) and {option} is {time_format!r}",
            expected="one of " + ", ".join(EPOCH_UNITS),
            hint=f"give the unit of the numbers where the stream is made, for example {option}=epoch_ms",
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


def rows_beyond_years(column: pa.ChunkedArray) -> Mask | None:
    """Return which rows have a timestamp or date outside the years 1 to 9999, at any depth; None if no row has."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        first, last = (pa.scalar(us, pa.timestamp("us")).cast(kind, safe=False) for us in (_FIRST_US, _LAST_US))
        ends = pc.min_max(column)
        if not ends["min"].is_valid or (ends["min"].value >= first.value and ends["max"].value <= last.value):
            return None
        beyond = pc.or_(pc.less(column, first), pc.greater(column, last))
        return pc.fill_null(beyond, False).to_numpy().astype(np.bool_)
    beyond = np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_struct(kind):
        for field in column.flatten():
            beyond |= False if (rows := rows_beyond_years(field)) is None else rows
    elif (pa.types.is_list(kind) or pa.types.is_map(kind)) and mapped_type(kind, _time_as_text) != kind:
        for values, parents in values_inside(column.combine_chunks()):
            if (rows := rows_beyond_years(pa.chunked_array([values]))) is not None:
                beyond[parents[rows]] = True
    return beyond if beyond.any() else None


def with_python_times(rows: pa.Table) -> pa.Table:
    """Return rows with text in place of times if a column has one that Python cannot hold."""
    for at, field in enumerate(rows.schema):
        if rows_beyond_years(rows.column(at)) is not None:
            rows = rows.set_column(at, field.name, rows.column(at).cast(mapped_type(field.type, _time_as_text)))
    return rows


def python_rows(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return rows of Python's values, with text for the times of a column that has one that Python cannot hold."""
    import polars as pl

    beyond = [name for name, kind in rows.schema.items() if kind.is_temporal() or kind.is_nested()]
    texts = with_python_times(rows.select(beyond).to_arrow(compat_level=pl.CompatLevel.oldest()))
    return rows.with_columns(pl.DataFrame(texts).get_columns()).rows() if beyond else rows.rows()


def _time_as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else kind


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
    """Return the last microsecond whose float is not beyond the value. Rounding could put rows beyond a bound."""
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

    series = pl.Series(array.cast(pa.string()))
    if time_format is not None:
        times = time_pattern(time_format).parse(series)
        zoned = "z" in time_pattern(time_format).directives
        return _in_utc(pa.chunked_array([times.dt.replace_time_zone("UTC" if zoned else None).to_arrow()]), time_zone)
    # Polars reads offsets and fractions that Arrow's strptime does not; a value that does not fit becomes null, not an
    # error.
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
