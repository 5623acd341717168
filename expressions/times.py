"""Functions of dates and timestamps, in UTC microseconds, over the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ..conf.errors import SchemaError
from ..core.rows.exact_integers import Int64s
from .calendar import (
    DAY,
    FIRST_DAY,
    LAST_DAY,
    LEAVE_OUT,
    OUTSIDE,
    SECOND,
    civil_of_days,
    dates_of,
    days_in_month,
    days_of,
    days_of_civil,
    micros_of,
    on_integers,
    timestamps_of,
)
from .coercion import Rule, Signature, cast, implicit, misfit
from .columnar import Builder, Kernel, on_arrays
from .decimals import as_decimals, int128, unscaled
from .kinds import BOOLEAN, DATE, DOUBLE, INT, LOCAL_TIMESTAMP, LONG, MONTHS, TEXT, TIMESTAMP, is_decimal
from .nodes import Call, Constant, Expression
from .notation import text_of_timestamp

LENGTHS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 3_600 * SECOND,
    "DAY": DAY,
    "DAYOFYEAR": DAY,
    "WEEK": 7 * DAY,
}
MONTHS_OF = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
UNITS = (*LENGTHS, *MONTHS_OF)
"""The units of ``timestampadd`` and ``timestampdiff``, from the shortest to the longest."""


def _unit(function: str, arguments: Sequence[Expression], units: Sequence[str] = UNITS) -> Constant:
    unit = arguments[0] if len(arguments) == 3 else None
    if not isinstance(unit, Constant) or str(unit.value).upper() not in units:
        raise misfit(function, arguments, f"a unit and two values; the unit is one of {', '.join(units)}")
    return Constant(str(unit.value).upper(), TEXT)


def _time(function: str, arguments: Sequence[Expression], value: Expression) -> Expression:
    found = value if value.type == LOCAL_TIMESTAMP else implicit(value, TIMESTAMP)
    if found is None:
        raise misfit(function, arguments, "a TIMESTAMP or DATE")
    return found


def _later_rule(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) == 2 and function != "timestampadd":
        return Signature(DATE, (DATE, INT), name="date_add")(function, arguments)
    unit = _unit(function, arguments)
    count, time = implicit(arguments[1], LONG), _time(function, arguments, arguments[2])
    if count is None:
        raise misfit(function, arguments, "a unit, a number of units, and a time")
    return Call("timestampadd", (unit, count, time), time.type)


def _between_rule(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) == 2 and function != "timestampdiff":
        return Signature(INT, (DATE, DATE), name="datediff")(function, arguments)
    unit = _unit(function, arguments, [each for each in UNITS if each != "DAYOFYEAR"])  # as in Spark
    times = [cast(_time(function, arguments, each), TIMESTAMP) for each in arguments[1:]]
    return Call("timestampdiff", (unit, *times), LONG)


_SECONDS = pa.decimal128(16, 6)


MONTH_RULES: Mapping[str, Rule] = {
    "make_date": Signature(DATE, (INT, INT, INT)),
    **dict.fromkeys(("make_timestamp", "try_make_timestamp"), Signature(TIMESTAMP, (*[INT] * 5, _SECONDS))),
    "next_day": Signature(DATE, (DATE, TEXT)),
    "add_months": Signature(DATE, (DATE, INT)),
    "last_day": Signature(DATE, (DATE,)),
    "months_between": Signature(DOUBLE, (TIMESTAMP, TIMESTAMP, BOOLEAN), optional=1),
    **dict.fromkeys(("date_add", "dateadd", "timestampadd"), _later_rule),
    **dict.fromkeys(("datediff", "date_diff", "timestampdiff"), _between_rule),
}


def months_later(days: Int64s, months: Int64s | int) -> Int64s:
    """Return the same day of a later month, or the month's last day if it is shorter."""
    year, month, day = civil_of_days(days)
    count = year * 12 + month - 1 + months
    year, month = count // 12, count % 12 + 1
    return days_of_civil(year, month, np.minimum(day, days_in_month(year, month)))


def _make_date(build: Builder, *parts: pl.Expr) -> pl.Expr:
    year, month, day = (build.share(part.cast(pl.Int64)) for part in parts)
    given = pl.all_horizontal(each.is_not_null() for each in (year, month, day))
    build.fail(~month.is_between(1, 12) & given, "there is no such month", "number the months from 1 to 12")
    known = pl.when(month.is_between(1, 12))
    last = on_integers(days_in_month, year, known.then(month).otherwise(1))
    real = build.share(month.is_between(1, 12) & day.is_between(1, last))
    build.fail(~real & month.is_between(1, 12) & given, "the month has no such day", LEAVE_OUT)
    inside = year.is_between(1, 9999)
    build.fail(~inside & given, OUTSIDE, LEAVE_OUT, lasting=True)
    made = on_integers(days_of_civil, *(pl.when(real & inside).then(each) for each in (year, month, day)))
    return made.cast(pl.Int32).cast(pl.Date)


def _make_timestamp(build: Builder, *parts: pl.Expr) -> pl.Expr:
    there = pl.all_horizontal(part.is_not_null() for part in parts)  # before any of them is evaluated
    date = build.share(_make_date(build, pl.when(there).then(parts[0]), *parts[1:3]))
    hour, minute = (build.share(part.cast(pl.Int64)) for part in parts[3:5])
    micros = build.share(unscaled(parts[5]).cast(pl.Int64))
    real = build.share(hour.is_between(0, 23) & minute.is_between(0, 59) & micros.is_between(0, 60 * SECOND))
    build.fail(~real & date.is_not_null(), "there is no such time of day", LEAVE_OUT)
    day = days_of(date) * DAY
    made = timestamps_of(build, pl.when(real).then(day + (hour * 60 + minute) * 60 * SECOND + micros))
    return made.cast(pl.Datetime("us", build.type.tz))


_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def _next_day(build: Builder, date: pl.Expr, _: pl.Expr) -> pl.Expr:
    name = build.constant(1, "the day of the week")
    if name is None:
        return build.nothing(date)
    found = [at for at, each in enumerate(_WEEKDAYS) if name.upper() in (each, each[:3], each[:2])]
    if not found:
        raise SchemaError(f"{name!r} is not a day of the week", expected=", ".join(each.title() for each in _WEEKDAYS))
    days = days_of(date)
    return dates_of(build, days + (found[0] - (days + 3) - 1) % 7 + 1)


def _add_months(build: Builder, date: pl.Expr, months: pl.Expr) -> pl.Expr:
    return dates_of(build, on_integers(months_later, days_of(date), months.cast(pl.Int64)))


def _last_day(build: Builder, date: pl.Expr) -> pl.Expr:
    def run(days: Int64s) -> Int64s:
        year, month, day = civil_of_days(days)
        return days - day + days_in_month(year, month)

    return dates_of(build, on_integers(run, days_of(date)))


def months_added(build: Builder, time: pl.Expr, sign: int) -> pl.Expr:
    """Move times by the interval of months in the call's second argument."""
    interval = build.call.arguments[1]
    if not isinstance(interval, Constant):
        raise SchemaError(f"{interval} differs by row", expected="a constant interval of months")
    if interval.value is None:
        return pl.when(pl.lit(value=False)).then(time)
    months, days, nanos = (sign * int(part) for part in interval.value)
    if build.type == DATE:
        return dates_of(build, on_integers(lambda array: months_later(array, months) + days, days_of(time)))
    micros = build.share(micros_of(time))
    moved = on_integers(lambda array: months_later(array, months) + days, micros // DAY)
    exact = moved.cast(pl.Int128) * DAY + micros % DAY + nanos // 1_000
    return timestamps_of(build, exact).cast(pl.Datetime("us", build.type.tz))


def _months_between(_: Builder, one: pl.Expr, other: pl.Expr, rounded: pl.Expr | None = None) -> pl.Expr:
    """Return whole months and the rest in months of 31 days, like Spark and Hive."""
    times = [micros_of(one), micros_of(other)]
    parts = [part for each in times for part in (each // DAY, each % DAY // SECOND)]
    return months_since(*parts, rounded=rounded)


def months_since(
    one: pl.Expr, second: pl.Expr, other: pl.Expr, seconds: pl.Expr, *, rounded: pl.Expr | None = None
) -> pl.Expr:
    """Return the months between two times, each given by its day since 1970 and its second of the day."""

    def run(
        one: Int64s, second: Int64s, other: Int64s, of_other: Int64s, rounds: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        (year, month, day), (years, months, days) = civil_of_days(one), civil_of_days(other)
        whole = ((year * 12 + month) - (years * 12 + months)).astype(np.float64)
        ends = (day == days_in_month(year, month)) & (days == days_in_month(years, months))
        elapsed = (day - days) * 86_400 + second - of_other
        exact = whole + elapsed / (31 * 86_400.0)
        near = exact * 1e8
        floor = np.floor(near)
        exact = np.where(rounds, (floor + (near - floor >= 0.5)) / 1e8, exact)
        return np.where((day == days) | ends, whole, exact)

    rounds = pl.lit(value=True) if rounded is None else rounded
    return on_arrays(run, one, second, other, seconds, rounds.cast(pl.Int8), dtype=pl.Float64)


MOST_MONTHS = 200_000
"""More months than the years 1 to 9999 have, so adding them always leaves the range."""


def _timestampadd(build: Builder, _: pl.Expr, count: pl.Expr, time: pl.Expr) -> pl.Expr:
    unit = build.constant(0, "the unit")
    if unit in LENGTHS:
        moved = micros_of(time).cast(pl.Int128) + count.cast(pl.Int128) * int128(LENGTHS[unit])
        return timestamps_of(build, moved).cast(pl.Datetime("us", build.type.tz))
    months = count.clip(-MOST_MONTHS, MOST_MONTHS) * MONTHS_OF[unit]
    return _moved(build, time, on_integers(months_later, micros_of(time) // DAY, months))


def _moved(build: Builder, time: pl.Expr, days: pl.Expr) -> pl.Expr:
    moved = timestamps_of(build, days.cast(pl.Int128) * DAY + micros_of(time) % DAY)
    return moved.cast(pl.Datetime("us", build.type.tz))


def _timestampdiff(build: Builder, _: pl.Expr, start: pl.Expr, end: pl.Expr) -> pl.Expr:
    unit = build.constant(0, "the unit")

    def run(start: Int64s, end: Int64s) -> Any:
        if unit in LENGTHS:
            return _towards_zero(end - start, LENGTHS[unit])
        # Like Java: an incomplete last day does not count, so it moves the end towards the start by a day.
        first, last, clock = start // DAY, end // DAY, end % DAY - start % DAY
        last = last - ((last > first) & (clock < 0)) + ((last < first) & (clock > 0))
        (year, month, day), (years, months, days) = civil_of_days(first), civil_of_days(last)
        # Month and day in one number: a part of a month is less than 32 days.
        later = (years * 12 + months - year * 12 - month) * 32 + days - day
        return _towards_zero(later, 32 * MONTHS_OF[unit])

    return on_arrays(run, micros_of(start), micros_of(end), dtype=pl.Int64)


def _towards_zero(value: Int64s, by: int) -> Int64s:
    return np.sign(value) * (np.abs(value) // by)


MONTH_FUNCTIONS: Mapping[str, Kernel] = {
    "make_date": _make_date,
    "make_timestamp": _make_timestamp,
    "next_day": _next_day,
    "add_months": _add_months,
    "last_day": _last_day,
    "months_between": _months_between,
    "timestampadd": _timestampadd,
    "timestampdiff": _timestampdiff,
}


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
        return (on_integers(lambda array: _months_start(array, months), days) * DAY).cast(pl.Datetime("us", "UTC"))
    return build.nothing(time)  # as Spark does


def _window_bound(build: Builder, time: pl.Expr, slide: pl.Expr, shift: pl.Expr) -> pl.Expr:
    """Round a time down to a multiple of the slide since the epoch, and add the shift."""
    return timestamps_of(build, (micros_of(time) // slide * slide).cast(pl.Int128) + shift)


def _trunc(build: Builder, date: pl.Expr, _: pl.Expr) -> pl.Expr:
    unit = build.constant(1, "the unit")
    name = None if unit is None else str(unit).upper()
    if name == "WEEK":
        return dates_of(build, _week_start(days_of(date)))
    if name in _MONTHS:
        months = _MONTHS[name]
        started = on_integers(lambda array: _months_start(array, months), days_of(date))
        return started.cast(pl.Int32).cast(pl.Date)
    return build.nothing(date)


def _field(function: Callable[[Int64s], Any]) -> Kernel:
    return lambda _, date: on_integers(function, days_of(date)).cast(pl.Int32)


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
        usable = build.share(pl.when(seconds.is_finite()).then(micros))
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


def _days_added(sign: int) -> Kernel:
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
    "window_bound": _window_bound,
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
    "date_add": _days_added(1),
    "date_sub": _days_added(-1),
    "datediff": lambda _, end, start: end.to_physical() - start.to_physical(),
    "add_interval": _with_interval(1),
    "subtract_interval": _with_interval(-1),
    "subtract_times": _difference,
}
