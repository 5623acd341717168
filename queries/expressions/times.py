"""Functions of dates and timestamps, in UTC and in microseconds, over the years 1 to 9999."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from ...conf.errors import SchemaError
from .arrays import on_arrays
from .building import Builder, Kernel
from .calendar import FIRST_DAY, LAST_DAY, Int64s, civil_of_days, days_in_month, days_of_civil
from .kinds import DATE, DOUBLE, MONTHS, is_decimal
from .nodes import Constant
from .unscaled import as_decimals, int128, unscaled
from .writing import formatted, text_of_timestamp

__all__ = ["TIMES"]

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_YEARS = "the result is outside the years 1 to 9999"
_LEAVE_OUT = "leave such rows out"
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 3_600 * _SECOND,
    "DAY": _DAY,
    "DD": _DAY,
}
_MONTHS = {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}
_FORMATS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%3f", "SSSSSS": "%6f"}


def _instants(build: Builder, micros: pl.Expr) -> pl.Expr:
    """Return microseconds since 1970, of Int128 or wider, as timestamps; those outside the years are an error."""
    micros = build.share(micros)
    inside = micros.is_between(FIRST_DAY * _DAY, (LAST_DAY + 1) * _DAY - 1)
    build.fail(~inside, _YEARS, _LEAVE_OUT, lasting=True)
    return pl.when(inside).then(micros).cast(pl.Int64, strict=False).cast(pl.Datetime("us", "UTC"))


def _dates(build: Builder, days: pl.Expr) -> pl.Expr:
    days = build.share(days)
    inside = days.is_between(FIRST_DAY, LAST_DAY)
    build.fail(~inside, _YEARS, _LEAVE_OUT, lasting=True)
    return pl.when(inside).then(days).cast(pl.Int32, strict=False).cast(pl.Date)


def _days(dates: pl.Expr) -> pl.Expr:
    return dates.to_physical().cast(pl.Int64)


def _micros(times: pl.Expr) -> pl.Expr:
    return times.to_physical()


def _on_days(function: Callable[..., Any], *values: pl.Expr) -> pl.Expr:
    return on_arrays(function, *values, dtype=pl.Int64)


def _months_start(days: Int64s, months: int) -> Int64s:
    year, month, _ = civil_of_days(days)
    return days_of_civil(year, (month - 1) // months * months + 1, np.ones_like(days))


def _week_start(days: pl.Expr) -> pl.Expr:
    return (days + 3) // 7 * 7 - 3  # the epoch is a Thursday


def _months_later(days: Int64s, months: Int64s | int) -> Int64s:
    """Return the same day of a later month, or the last one if that month is shorter."""
    year, month, day = civil_of_days(days)
    count = year * 12 + month - 1 + months
    year, month = count // 12, count % 12 + 1
    return days_of_civil(year, month, np.minimum(day, days_in_month(year, month)))


def _date_trunc(build: Builder, _: pl.Expr, time: pl.Expr) -> pl.Expr:
    unit = build.constant(0, "the unit")
    name = None if unit is None else str(unit).upper()
    if name in _UNITS:
        size = _UNITS[name]
        return (_micros(time) // size * size).cast(pl.Datetime("us", "UTC"))
    days = _micros(time) // _DAY
    if name == "WEEK":
        return _instants(build, _week_start(days) * _DAY)
    if name in _MONTHS:
        months = _MONTHS[name]
        return (_on_days(lambda array: _months_start(array, months), days) * _DAY).cast(pl.Datetime("us", "UTC"))
    return pl.when(pl.lit(value=False)).then(time)  # as Spark does


def _trunc(build: Builder, date: pl.Expr, _: pl.Expr) -> pl.Expr:
    unit = build.constant(1, "the unit")
    name = None if unit is None else str(unit).upper()
    if name == "WEEK":
        return _dates(build, _week_start(_days(date)))
    if name in _MONTHS:
        months = _MONTHS[name]
        started = _on_days(lambda array: _months_start(array, months), _days(date))
        return started.cast(pl.Int32).cast(pl.Date)
    return pl.when(pl.lit(value=False)).then(date)


def _field(function: Callable[[Int64s], Any]) -> Kernel:
    return lambda _, date: _on_days(function, _days(date)).cast(pl.Int32)


def _day_of_year(days: Int64s) -> Int64s:
    return days - _months_start(days, 12) + 1


def _week_of_year(days: Int64s) -> Any:
    """Return the week by ISO 8601: that of the year in which its Thursday is."""
    return (_day_of_year(days - (days + 3) % 7 + 3) - 1) // 7 + 1


def _clock(size: int, count: int) -> Kernel:
    return lambda _, time: (_micros(time) // size % count).cast(pl.Int32)


def _second_with_fraction(build: Builder, time: pl.Expr) -> pl.Expr:
    return as_decimals((_micros(time) % (60 * _SECOND)).cast(pl.Int128), build.type)


def _unix(size: int) -> Kernel:
    return lambda _, time: _micros(time) // size


def _timestamp_of(size: int) -> Kernel:
    return lambda build, count: _instants(build, count.cast(pl.Int128) * int128(size))


def _timestamp_seconds(build: Builder, seconds: pl.Expr) -> pl.Expr:
    given = build.call.arguments[0].type
    if given == DOUBLE:
        micros = seconds * 1e6
        usable = build.share(pl.when(micros.is_finite()).then(micros))
        inside = usable.is_between(float(FIRST_DAY * _DAY), float((LAST_DAY + 1) * _DAY) - 64)
        build.fail(~inside, _YEARS, _LEAVE_OUT, lasting=True)
        return pl.when(inside).then(usable).cast(pl.Int64, strict=False).cast(pl.Datetime("us", "UTC"))
    if is_decimal(given):
        numbers = build.share(unscaled(seconds))
        if given.scale <= 6:
            return _instants(build, numbers * int128(10 ** (6 - given.scale)))
        unit = int128(10 ** (given.scale - 6))
        build.fail(numbers % unit != 0, "it has digits below a microsecond", "round it to 6 digits after the point")
        return _instants(build, pl.when(numbers % unit == 0).then(numbers // unit))
    return _instants(build, seconds.cast(pl.Int128) * int128(_SECOND))


def _from_unixtime(build: Builder, seconds: pl.Expr) -> pl.Expr:
    return text_of_timestamp(build, _instants(build, seconds.cast(pl.Int128) * int128(_SECOND)))


def _moved(sign: int) -> Kernel:
    return lambda build, date, days: _dates(build, _days(date) + sign * days.cast(pl.Int64))


def _add_months(build: Builder, date: pl.Expr, months: pl.Expr) -> pl.Expr:
    return _dates(build, _on_days(_months_later, _days(date), months.cast(pl.Int64)))


def _last_day(build: Builder, date: pl.Expr) -> pl.Expr:
    def run(days: Int64s) -> Int64s:
        year, month, day = civil_of_days(days)
        return days - day + days_in_month(year, month)

    return _dates(build, _on_days(run, _days(date)))


def _with_interval(sign: int) -> Kernel:
    def kernel(build: Builder, time: pl.Expr, interval: pl.Expr) -> pl.Expr:
        if build.call.arguments[1].type == MONTHS:
            return _with_months(build, time, sign)
        if build.type == DATE:
            return _dates(build, _days(time) + sign * (_micros(interval) // _DAY))
        made = _instants(build, _micros(time).cast(pl.Int128) + sign * _micros(interval).cast(pl.Int128))
        return made.cast(pl.Datetime("us", _zone(build)))

    return kernel


def _zone(build: Builder) -> str | None:
    return build.type.tz


def _with_months(build: Builder, time: pl.Expr, sign: int) -> pl.Expr:
    interval = build.call.arguments[1]
    if not isinstance(interval, Constant):
        raise SchemaError(f"{interval} differs by row", expected="a constant interval of months")
    if interval.value is None:
        return pl.when(pl.lit(value=False)).then(time)
    months, days, nanos = (sign * int(part) for part in interval.value)
    if build.type == DATE:
        return _dates(build, _on_days(lambda array: _months_later(array, months) + days, _days(time)))
    micros = build.share(_micros(time))
    moved = _on_days(lambda array: _months_later(array, months) + days, micros // _DAY)
    exact = moved.cast(pl.Int128) * _DAY + micros % _DAY + nanos // 1_000
    return _instants(build, exact).cast(pl.Datetime("us", _zone(build)))


def _difference(build: Builder, end: pl.Expr, start: pl.Expr) -> pl.Expr:
    if build.call.arguments[0].type == DATE:
        return ((_days(end) - _days(start)) * _DAY).cast(pl.Duration("us"))
    return (_micros(end) - _micros(start)).cast(pl.Duration("us"))


def _date_format(build: Builder, time: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the format")
    if pattern is None:
        return pl.lit(None, dtype=pl.String)
    made = ""
    for quoted, word, other in _words(pattern):
        made += quoted.replace("%", "%%") or _FORMATS.get(word) or other.replace("%", "%%")
    return formatted(build, time, made)


def _words(pattern: str) -> list[tuple[str, str, str]]:
    """Return the parts of a format of dates: quoted text, the same letter several times, or another character."""
    parts: list[tuple[str, str, str]] = []
    at = 0
    while at < len(pattern):
        found = re.compile(r"'([^']+)'|([A-Za-z])\2*|[-/:.,_ ]").match(pattern, at)
        word = found[0] if found else pattern[at:]
        letters = found is not None and found[2] is not None
        if found is None or (letters and word not in _FORMATS):
            raise SchemaError(
                f"the format {pattern!r} has {word!r}",
                expected=", ".join(_FORMATS) + ", punctuation, and 'quoted text'",
            )
        parts.append((found[1] or "", word if letters else "", "" if letters or found[1] else word))
        at = found.end()
    return parts


TIMES: Mapping[str, Kernel] = {
    "year": _field(lambda days: civil_of_days(days)[0]),
    "quarter": _field(lambda days: (civil_of_days(days)[1] - 1) // 3 + 1),
    "month": _field(lambda days: civil_of_days(days)[1]),
    "day": _field(lambda days: civil_of_days(days)[2]),
    "dayofyear": _field(_day_of_year),
    "weekofyear": _field(_week_of_year),
    "dayofweek": lambda _, date: ((_days(date) + 4) % 7 + 1).cast(pl.Int32),
    "weekday": lambda _, date: ((_days(date) + 3) % 7).cast(pl.Int32),
    "hour": _clock(3_600 * _SECOND, 24),
    "minute": _clock(60 * _SECOND, 60),
    "second": _clock(_SECOND, 60),
    "second_with_fraction": _second_with_fraction,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "unix_seconds": _unix(_SECOND),
    "unix_millis": _unix(1_000),
    "unix_micros": _unix(1),
    "unix_date": lambda _, date: date.to_physical(),
    "date_from_unix_date": lambda build, days: _dates(build, days.cast(pl.Int64)),
    "timestamp_seconds": _timestamp_seconds,
    "timestamp_millis": _timestamp_of(1_000),
    "timestamp_micros": _timestamp_of(1),
    "from_unixtime": _from_unixtime,
    "date_add": _moved(1),
    "date_sub": _moved(-1),
    "add_months": _add_months,
    "datediff": lambda _, end, start: end.to_physical() - start.to_physical(),
    "last_day": _last_day,
    "date_format": _date_format,
    "add_interval": _with_interval(1),
    "subtract_interval": _with_interval(-1),
    "subtract_times": _difference,
}
