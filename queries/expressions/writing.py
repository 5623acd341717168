"""Numbers, dates and timestamps as text in the form of Spark's casts."""

from __future__ import annotations

from decimal import Decimal

import polars as pl

from .building import Builder
from .calendar import FIRST_DAY, LAST_DAY

__all__ = ["formatted", "text_of_date", "text_of_double", "text_of_timestamp"]

_DAY_US = 86_400_000_000
_YEARS = "the time is outside the years 1 to 9999"


def text_of_date(build: Builder, dates: pl.Expr) -> pl.Expr:
    """Return dates as ``yyyy-MM-dd``."""
    inside = dates.to_physical().is_between(FIRST_DAY, LAST_DAY)
    build.fail(~inside, _YEARS, "leave such rows out", lasting=True)
    return _written(dates, inside, "%Y-%m-%d")


def text_of_timestamp(build: Builder, times: pl.Expr) -> pl.Expr:
    """Return timestamps as ``yyyy-MM-dd HH:mm:ss``, with the second's fraction without trailing zeros."""
    text = formatted(build, times, "%Y-%m-%d %H:%M:%S%.6f")
    return text.str.strip_chars_end("0").str.strip_suffix(".")


def formatted(build: Builder, times: pl.Expr, pattern: str) -> pl.Expr:
    """Return timestamps in a format of ``strftime``."""
    times = build.share(times)
    inside = times.to_physical().is_between(FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1)
    build.fail(~inside, _YEARS, "leave such rows out", lasting=True)
    return _written(times, inside, pattern)


def _written(times: pl.Expr, inside: pl.Expr, pattern: str) -> pl.Expr:
    """Return times as text, null outside the years: Polars panics there, even below a null."""
    epoch = pl.lit(0, dtype=pl.Int32).cast(pl.Date)
    return pl.when(inside).then(pl.when(inside).then(times).otherwise(epoch).dt.to_string(pattern))


def text_of_double(numbers: pl.Series) -> pl.Series:
    """Write floating-point numbers like Java: ``0.001``, ``1234567.0``, ``1.0E7``, ``1.0E-4``, ``NaN``.

    The digits are the fewest that identify the number.
    """
    text = numbers.cast(pl.String)
    size = numbers.abs()
    plain = ((size >= 1e-3) & (size < 1e7)) | (size == 0)
    frame = pl.DataFrame({"text": text, "size": size.cast(pl.Float64), "plain": plain})
    digits, power = _digits(), _power()
    mantissa = pl.concat_str(
        digits.str.slice(0, 1),
        pl.lit("."),
        pl.when(digits.str.len_chars() > 1).then(digits.str.slice(1)).otherwise(pl.lit("0")),
    )
    sign = pl.when(pl.col("text").str.starts_with("-")).then(pl.lit("-")).otherwise(pl.lit(""))
    large = pl.when(pl.col("size").is_nan()).then(pl.lit("NaN"))
    large = large.when(pl.col("size").is_infinite()).then(sign + pl.lit("Infinity"))
    large = large.otherwise(pl.concat_str(sign, mantissa, pl.lit("E"), power.cast(pl.String)))
    made = frame.select(pl.when(pl.col("plain")).then(pl.col("text")).otherwise(large)).to_series()
    coarse = ((size > 0) & (size < (1e-43 if numbers.dtype == pl.Float32 else 1e-322))).fill_null(value=False)
    if not coarse.any():
        return made
    # Java writes two digits at least, and of those the nearest: 4.9E-324.
    places = coarse.arg_true()
    return made.scatter(places, [f"{Decimal(each):.1E}" for each in numbers.gather(places)])


def _parts() -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return the digits before and after the point, and the exponent, of Polars' text."""
    text = pl.col("text")
    whole = text.str.extract(r"^-?([0-9]+)", 1)
    part = text.str.extract(r"\.([0-9]+)", 1).fill_null("")
    exponent = text.str.extract(r"e([+-]?[0-9]+)$", 1).str.strip_prefix("+").cast(pl.Int64).fill_null(0)
    return whole, part, exponent


def _digits() -> pl.Expr:
    whole, part, _ = _parts()
    return pl.concat_str(whole, part).str.strip_chars_start("0").str.strip_chars_end("0")


def _power() -> pl.Expr:
    """Return the exponent of the first nonzero digit."""
    whole, part, exponent = _parts()
    before = whole.str.strip_chars_start("0").str.len_chars().cast(pl.Int64)
    zeros = part.str.len_chars().cast(pl.Int64) - part.str.strip_chars_start("0").str.len_chars().cast(pl.Int64)
    return exponent + pl.when(before > 0).then(before - 1).otherwise(-zeros - 1)
