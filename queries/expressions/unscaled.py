"""Decimals as unscaled Int128 numbers, which hold the 38 digits of Spark's decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from .arrays import on_series
from .kinds import MAX_PRECISION

__all__ = [
    "LIMIT",
    "as_decimals",
    "divided_half_even",
    "divided_half_up",
    "exact_decimals",
    "in_java_digits",
    "int128",
    "negative",
    "scaled",
    "unscaled",
]

LIMIT = 10**MAX_PRECISION
"""Numbers from this on have too many digits."""
_MOST = (1 << 127) - 1
_JAVA_DIGITS = 34


def int128(value: int) -> pl.Expr:
    """Return a constant of 128 bits."""
    return pl.lit(value, dtype=pl.Int128)


def negative(numbers: pl.Expr, where: pl.Expr) -> pl.Expr:
    """Negate Int128 numbers in some rows."""
    return pl.when(where).then(int128(0) - numbers).otherwise(numbers)


def unscaled(decimals: pl.Expr) -> pl.Expr:
    """Return decimals as Int128 counts of their last digit's unit."""
    return decimals.to_physical()


def as_decimals(numbers: pl.Expr, dtype: pa.Decimal128Type) -> pl.Expr:
    """Return unscaled Int128 numbers as decimals; null if they have too many digits."""
    fitting = pl.when(numbers.abs() < int128(10**dtype.precision)).then(numbers)
    whole = fitting.cast(pl.Decimal(MAX_PRECISION, 0))
    if dtype == pa.decimal128(MAX_PRECISION, 0):
        return whole
    return on_series(lambda series: _viewed(series, dtype), whole, dtype=pl.Decimal(dtype.precision, dtype.scale))


def _viewed(decimals: pl.Series, dtype: pa.Decimal128Type) -> pl.Series:
    array: Any = decimals.rechunk().to_arrow()
    made = pa.Array.from_buffers(dtype, len(array), array.buffers(), offset=array.offset)
    return pl.Series(decimals.name, pl.from_arrow(made))


def scaled(numbers: pl.Expr, digits: int) -> pl.Expr:
    """Append zeros to Int128 numbers; null if the result does not fit."""
    if digits == 0:
        return numbers
    if digits > MAX_PRECISION:
        return pl.when(numbers == 0).then(numbers)
    return pl.when(numbers.abs() <= int128(_MOST // 10**digits)).then(numbers) * int128(10**digits)


def divided_half_up(numbers: pl.Expr, digits: int) -> pl.Expr:
    """Remove the last digits of Int128 numbers, rounding half away from zero."""
    if digits == 0:
        return numbers
    if digits > MAX_PRECISION:
        return numbers * int128(0)
    unit, half, size = int128(10**digits), int128(10**digits // 2), numbers.abs()
    return negative(size // unit + (size % unit >= half).cast(pl.Int128), numbers < 0)


def divided_half_even(numbers: pl.Expr, unit: pl.Expr) -> pl.Expr:
    """Divide Int128 numbers by a unit, rounding half to even."""
    size = numbers.abs()
    quotient, rest = size // unit, size % unit
    left = unit - rest  # twice the rest may overflow
    up = (rest > left) | ((rest == left) & (quotient % int128(2) == 1))
    return negative(quotient + up.cast(pl.Int128), numbers < 0)


def in_java_digits(numbers: pl.Expr, precision: int) -> pl.Expr:
    """Round Int128 numbers half to even to the 34 digits that Java keeps of some results."""
    if precision <= _JAVA_DIGITS:
        return numbers
    # One unit for all: a step for each digit, based on the previous one, would double the expression each time.
    size, unit = numbers.abs(), int128(1)
    for more in range(1, precision - _JAVA_DIGITS + 1):
        unit = pl.when(size >= int128(10 ** (_JAVA_DIGITS + more - 1))).then(int128(10**more)).otherwise(unit)
    return divided_half_even(numbers, unit) * unit


def exact_decimals(
    fast: pl.Expr, fits: pl.Expr, slow: Callable[[int, int], int | None], left: pl.Expr, right: pl.Expr
) -> pl.Expr:
    """Return the 128-bit results `fast` where they are right (`fits`), and those of `slow` in the few other rows.

    `slow` computes with Python's integers, and returns None for too many digits.
    """

    def run(fast: pl.Series, fits: pl.Series, left: pl.Series, right: pl.Series) -> pl.Series:
        rest = (~fits & left.is_not_null() & right.is_not_null()).fill_null(value=False)
        if not rest.any():
            return fast
        places = rest.arg_true()
        made = [slow(one, two) for one, two in zip(left.gather(places), right.gather(places), strict=True)]
        small = [None if each is None or abs(each) > _MOST else each for each in made]
        return fast.scatter(places, pl.Series(small, dtype=pl.Int128))

    return on_series(run, fast, fits, left, right, dtype=pl.Int128)
