"""Functions of dates and timestamps, in UTC microseconds, over the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from .building import Builder, Kernel
from .calendar import FIRST_DAY, LAST_DAY, Int64s, civil_of_days, days_of_civil
from .instants import DAY, LEAVE_OUT, OUTSIDE, SECOND, dates_of, days_of, micros_of, on_days, timestamps_of
from .kinds import DATE, DOUBLE, MONTHS, is_decimal
from .months import months_added
from .unscaled import as_decimals, int128, unscaled
from .writing import text_of_timestamp

__all__ = ["TIMES"]

_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 3_600 * SECOND,
    "DAY": DAY,
    "DD": DAY,
}
_MONTHS = {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}


def _months_start(days: Int64s, months: int) -> Int64s:
    year, month, _ = civil_of_days(days)
    return days_of_civil(year, (month - 1) // months * months + 1, np.ones_like(days))


def _week_start(days: pl.Expr) -> pl.Expr:
    return (days + 3) // 7 * 7 - 3  # the epoch is a Thursday


def _date_trunc(build: Builder, _: pl.Expr, time: pl.Expr) -> pl.Expr:
    unit = build.constant(0, "the unit")
    name = None if unit is None else str(unit).upper()
    if name in _UNITS:
        size = _UNITS[name]
        return (micros_of(time) // size * size).cast(pl.Datetime("us", "UTC"))
    days = micros_of(time) // DAY
    if name == "WEEK":
        return timestamps_of(build, _week_start(days) * DAY)
    if name in _MONTHS:
        months = _MONTHS[name]
        return (on_days(lambda array: _months_start(array, months), days) * DAY).cast(pl.Datetime("us", "UTC"))
    return build.nothing(time)  # as Spark does


def _trunc(build: Builder, date: pl.Expr, _: pl.Expr) -> pl.Expr:
    unit = build.constant(1, "the unit")
    name = None if unit is None else str(unit).upper()
    if name == "WEEK":
        return dates_of(build, _week_start(days_of(date)))
    if name in _MONTHS:
        months = _MONTHS[name]
        started = on_days(lambda array: _months_start(array, months), days_of(date))
        return started.cast(pl.Int32).cast(pl.Date)
    return build.nothing(date)


def _field(function: Callable[[Int64s], Any]) -> Kernel:
    return lambda _, date: on_days(function, days_of(date)).cast(pl.Int32)


def _day_of_year(days: Int64s) -> Int64s:
    return days - _months_start(days, 12) + 1


def _week_of_year(days: Int64s) -> Any:
    """Return the ISO 8601 week: of the year that has its Thursday."""
    return (_day_of_year(days - (days + 3) % 7 + 3) - 1) // 7 + 1


def _clock(size: int, count: int) -> Kernel:
    return lambda _, time: (micros_of(time) // size % count).cast(pl.Int32)


def _second_with_fraction(build: Builder, time: pl.Expr) -> pl.Expr:
    return as_decimals((micros_of(time) % (60 * SECOND)).cast(pl.Int128), build.type)


def _unix(size: int) -> Kernel:
    return lambda _, time: micros_of(time) // size


def _timestamp_of(size: int) -> Kernel:
    return lambda build, count: timestamps_of(build, count.cast(pl.Int128) * int128(size))


def _timestamp_seconds(build: Builder, seconds: pl.Expr) -> pl.Expr:
    given = build.call.arguments[0].type
    if given == DOUBLE:
        micros = seconds * 1e6
        usable = build.share(pl.when(micros.is_finite()).then(micros))
        inside = usable.is_between(float(FIRST_DAY * DAY), float((LAST_DAY + 1) * DAY) - 64)
        build.fail(~inside, OUTSIDE, LEAVE_OUT, lasting=True)
        return pl.when(inside).then(usable).cast(pl.Int64, strict=False).cast(pl.Datetime("us", "UTC"))
    if is_decimal(given):
        numbers = build.share(unscaled(seconds))
        if given.scale <= 6:
            return timestamps_of(build, numbers * int128(10 ** (6 - given.scale)))
        unit = int128(10 ** (given.scale - 6))
        build.fail(numbers % unit != 0, "it has digits below a microsecond", "round it to 6 digits after the point")
        return timestamps_of(build, pl.when(numbers % unit == 0).then(numbers // unit))
    return timestamps_of(build, seconds.cast(pl.Int128) * int128(SECOND))


def _from_unixtime(build: Builder, seconds: pl.Expr) -> pl.Expr:
    return text_of_timestamp(build, timestamps_of(build, seconds.cast(pl.Int128) * int128(SECOND)))


def _moved(sign: int) -> Kernel:
    return lambda build, date, days: dates_of(build, days_of(date) + sign * days.cast(pl.Int64))


def _with_interval(sign: int) -> Kernel:
    def kernel(build: Builder, time: pl.Expr, interval: pl.Expr) -> pl.Expr:
        if build.call.arguments[1].type == MONTHS:
            return months_added(build, time, sign)
        if build.type == DATE:
            return dates_of(build, days_of(time) + sign * (micros_of(interval) // DAY))
        made = timestamps_of(build, micros_of(time).cast(pl.Int128) + sign * micros_of(interval).cast(pl.Int128))
        return made.cast(pl.Datetime("us", _zone(build)))

    return kernel


def _zone(build: Builder) -> str | None:
    return build.type.tz


def _difference(build: Builder, end: pl.Expr, start: pl.Expr) -> pl.Expr:
    if build.call.arguments[0].type == DATE:
        return ((days_of(end) - days_of(start)) * DAY).cast(pl.Duration("us"))
    return (micros_of(end) - micros_of(start)).cast(pl.Duration("us"))


TIMES: Mapping[str, Kernel] = {
    "year": _field(lambda days: civil_of_days(days)[0]),
    "quarter": _field(lambda days: (civil_of_days(days)[1] - 1) // 3 + 1),
    "month": _field(lambda days: civil_of_days(days)[1]),
    "day": _field(lambda days: civil_of_days(days)[2]),
    "dayofyear": _field(_day_of_year),
    "weekofyear": _field(_week_of_year),
    "dayofweek": lambda _, date: ((days_of(date) + 4) % 7 + 1).cast(pl.Int32),
    "weekday": lambda _, date: ((days_of(date) + 3) % 7).cast(pl.Int32),
    "hour": _clock(3_600 * SECOND, 24),
    "minute": _clock(60 * SECOND, 60),
    "second": _clock(SECOND, 60),
    "second_with_fraction": _second_with_fraction,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "unix_seconds": _unix(SECOND),
    "unix_millis": _unix(1_000),
    "unix_micros": _unix(1),
    "unix_date": lambda _, date: date.to_physical(),
    "date_from_unix_date": lambda build, days: dates_of(build, days.cast(pl.Int64)),
    "timestamp_seconds": _timestamp_seconds,
    "timestamp_millis": _timestamp_of(1_000),
    "timestamp_micros": _timestamp_of(1),
    "from_unixtime": _from_unixtime,
    "date_add": _moved(1),
    "date_sub": _moved(-1),
    "datediff": lambda _, end, start: end.to_physical() - start.to_physical(),
    "add_interval": _with_interval(1),
    "subtract_interval": _with_interval(-1),
    "subtract_times": _difference,
}
