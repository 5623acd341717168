"""Days and microseconds since 1970 as times of the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from .arrays import on_arrays
from .building import Builder
from .calendar import FIRST_DAY, LAST_DAY

__all__ = ["DAY", "LEAVE_OUT", "OUTSIDE", "SECOND", "dates_of", "days_of", "micros_of", "on_days", "timestamps_of"]

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


def on_days(function: Callable[..., Any], *values: pl.Expr) -> pl.Expr:
    """Return the expression of a function of arrays of days or other whole numbers."""
    return on_arrays(function, *values, dtype=pl.Int64)
