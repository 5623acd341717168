"""Exact int64 arithmetic that raises an error instead of wrapping."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError, SchemaError

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Whole = int | np.integer[Any] | npt.NDArray[np.integer[Any]]
"""A whole number, or an array of them; results have its shape."""

LOWEST = int(np.iinfo(np.int64).min)
HIGHEST = int(np.iinfo(np.int64).max)
_WRAP = 1 << 64
# Every function here is monotone, so only the least and the greatest result need a check, by Python's integers. If they
# fit, arithmetic modulo 2⁶⁴ is exact, whatever its intermediate values.


def fits(value: int) -> bool:
    """Return whether a number fits int64."""
    return LOWEST <= value <= HIGHEST


def as_int64(values: Whole) -> Int64s:
    """Return the values as an int64 array (0-dimensional for a single number), or refuse them."""
    array = np.asarray(values)
    if array.dtype == np.int64:
        return array
    if array.dtype == np.object_ and isinstance(values, int):  # NumPy holds what does not fit as an object
        raise _too_far(values)
    if array.size == 0:
        return array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise SchemaError(
            f"windows over values of type {array.dtype}",
            expected="whole numbers: microseconds, row numbers, any int64 that grows with the stream",
        )
    if array.dtype == np.uint64 and int(array.max()) > HIGHEST:
        raise _too_far(int(array.max()))
    return array.astype(np.int64)


def affine(values: Whole, factor: int, add: int) -> Int64s:
    """Return ``values * factor + add`` for a positive `factor`, or raise an OptionError if a result exceeds 64 bits."""
    array = as_int64(values)
    for end in _ends(array):
        if not fits(end * factor + add):
            raise _too_far(end * factor + add)
    return _wrapping(array, factor, add)


def floor_div(values: Whole, divisor: int, *, shift: int = 0, add: int = 0, saturate: bool = False) -> Int64s:
    """Return ``⌊(values + shift) / divisor⌋ + add`` for a positive `divisor`, exactly.

    A result beyond 64 bits raises an OptionError. With `saturate` it becomes LOWEST or ``HIGHEST - 1``, which suits
    bounds: only their order relative to window-ids matters.
    """
    array = as_int64(values)
    if saturate:
        least, greatest = (LOWEST - add) * divisor - shift, (HIGHEST - add) * divisor - shift - 1
        array = np.clip(array, max(least, LOWEST), min(greatest, HIGHEST))
    for end in _ends(array):
        found = (end + shift) // divisor + add
        if not fits(found):
            raise _too_far(found)
    # values + shift may not fit, so quotients and remainders are subtracted, not numbers.
    quotients = np.atleast_1d(array) // divisor
    shift_quotient, shift_remainder = divmod(-shift, divisor)
    floors = _wrapping(quotients, 1, add - shift_quotient)
    if shift_remainder:
        remainders = np.atleast_1d(array) - _wrapping(quotients, divisor, 0)
        floors -= remainders < shift_remainder
    return floors.reshape(array.shape)


def _ends(array: Int64s) -> tuple[int, ...]:
    return (int(array.min()), int(array.max())) if array.size else ()


def _wrapping(array: Int64s, factor: int, add: int) -> Int64s:
    unsigned = np.ascontiguousarray(np.atleast_1d(array)).view(np.uint64)
    product = unsigned * np.uint64(factor % _WRAP) if factor != 1 else unsigned
    return (product + np.uint64(add % _WRAP)).view(np.int64).reshape(array.shape)


def _too_far(value: int) -> OptionError:
    return OptionError(
        f"a window reaches {value}, beyond 64 bits",
        expected=f"times, row numbers, window-ids and ends of windows from {LOWEST} to {HIGHEST}",
        hint="times that far out are mostly placeholders: filter them out before the window; or choose an origin "
        "nearer to the rows",
    )
