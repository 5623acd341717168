"""Rounding at a decimal place like Spark: a double counts by the digits with which it is shown."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from .arrays import on_arrays
from .unscaled import int128, negative

__all__ = ["rounded_doubles", "rounded_integers"]

_EXACT = 1e14
"""Below this many units of the last place, a double has enough digits to decide a tie."""
_MOST_PLACES = 22
"""The greatest power of ten that a double holds exactly."""


def rounded_integers(values: pl.Expr, places: int, *, even: bool) -> pl.Expr:
    """Round Int128 numbers of at most 37 digits at a place before the point: 1 rounds to tens."""
    if places > 37:
        return values * int128(0)
    unit, half, size = int128(10**places), int128(10**places // 2), values.abs()
    rest, quotient = size % unit, size // unit
    up = rest >= half
    if even:
        up = (rest > half) | ((rest == half) & (quotient % int128(2) == 1))
    return negative((quotient + up.cast(pl.Int128)) * unit, values < 0)


def rounded_doubles(values: pl.Expr, places: int, *, even: bool, single: bool) -> pl.Expr:
    """Round floating-point numbers at a place after the point, or before it if `places` is negative.

    Halves round away from zero, or to even. A double counts by its shortest decimal, so ``round(2.675, 2)`` is 2.68,
    although the stored number is a little less.
    """

    def run(given: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _rounded(given.astype(np.float64), places, even=even).astype(given.dtype)

    return on_arrays(run, values, dtype=pl.Float32 if single else pl.Float64)


def _rounded(values: npt.NDArray[np.float64], places: int, *, even: bool) -> npt.NDArray[np.float64]:
    size = np.abs(values)
    finite = np.isfinite(size)
    if abs(places) > _MOST_PLACES:
        return _one_by_one(values, finite, places, even=even)
    unit = 10.0 ** abs(places)
    units = size * unit if places >= 0 else size / unit
    nearest = np.floor(units)
    # A tie is the double nearest to a decimal that ends in 5. Greater numbers round up, the tie itself by the rule.
    first_up = _goes_up(size, _tie(nearest, places, unit), nearest, even=even)
    second_up = _goes_up(size, _tie(nearest + 1, places, unit), nearest + 1, even=even)
    below = ~_goes_up(size, _tie(nearest - 1, places, unit), nearest - 1, even=even) & (nearest > 0)
    found = np.where(first_up, np.where(second_up, nearest + 2, nearest + 1), np.where(below, nearest - 1, nearest))
    found = found / unit if places >= 0 else found * unit
    found = np.copysign(found, values) + 0.0
    unsure = finite & (units >= _EXACT)
    found = np.where(finite, found, values)
    return _one_by_one(values, unsure, places, even=even, found=found) if unsure.any() else found


def _tie(units: npt.NDArray[np.float64], places: int, unit: float) -> npt.NDArray[np.float64]:
    """Return the doubles halfway between a number of units and the next."""
    return (2 * units + 1) / (2 * unit) if places >= 0 else (2 * units + 1) * (unit / 2)


def _goes_up(
    size: npt.NDArray[np.float64], tie: npt.NDArray[np.float64], units: npt.NDArray[np.float64], *, even: bool
) -> npt.NDArray[np.bool_]:
    return (size > tie) | ((size == tie) & (units % 2 == 1)) if even else size >= tie


def _one_by_one(
    values: npt.NDArray[np.float64],
    where: npt.NDArray[np.bool_],
    places: int,
    *,
    even: bool,
    found: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.float64]:
    """Round the few values of very many digits by their decimal text."""
    made = values.copy() if found is None else found
    rule = ROUND_HALF_EVEN if even else ROUND_HALF_UP
    with localcontext() as context:
        context.prec = 1200
        for at in np.flatnonzero(where):
            exact = Decimal(repr(float(values[at])))
            made[at] = float(exact.quantize(Decimal(1).scaleb(-places), rounding=rule)) + 0.0
    return made
