"""The proleptic Gregorian calendar on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from ..core.rows.exact_integers import Int64s
from .columnar import Builder, on_arrays

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first day of the year 1 and the last of 9999, in days since 1970: the range of Python's dates and the tables."""
_LENGTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return the days since 1970-01-01; the dates must exist."""
    # Years begin in March, so that a leap day is a year's last; eras have 400 years.
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return year, month and day from the days since 1970-01-01."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + np.where(month < 10, 3, -9)
    return year + era * 400 + (month <= 2), month, day


def days_in_month(year: Int64s, month: Int64s) -> Any:
    """Return the lengths of months."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return _LENGTHS[month - 1] + ((month == 2) & leap)


SECOND = 1_000_000
DAY = 86_400 * SECOND
OUTSIDE = "the result is outside the years 1 to 9999"
LEAVE_OUT = "leave such rows out"


def timestamps_of(build: Builder, micros: pl.Expr) -> pl.Expr:
    """Return microseconds since 1970, of Int128 or wider, as timestamps; fail outside the years."""
    micros = build.share(micros)
    inside = micros.is_between(FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1)
    build.fail(~inside, OUTSIDE, LEAVE_OUT, lasting=True)
    return pl.when(inside).then(micros).cast(pl.Int64, strict=False).cast(pl.Datetime("us", "UTC"))


def dates_of(build: Builder, days: pl.Expr) -> pl.Expr:
    """Return days since 1970 as dates; fail outside the years."""
    days = build.share(days)
    inside = days.is_between(FIRST_DAY, LAST_DAY)
    build.fail(~inside, OUTSIDE, LEAVE_OUT, lasting=True)
    return pl.when(inside).then(days).cast(pl.Int32, strict=False).cast(pl.Date)


def days_of(dates: pl.Expr) -> pl.Expr:
    """Return the days since 1970."""
    return dates.to_physical().cast(pl.Int64)


def micros_of(times: pl.Expr) -> pl.Expr:
    """Return the microseconds since 1970."""
    return times.to_physical()


def on_integers(function: Callable[..., Any], *values: pl.Expr) -> pl.Expr:
    """Return the expression of a function of arrays of days or other whole numbers."""
    return on_arrays(function, *values, dtype=pl.Int64)
