"""Retractable sums of doubles to about 100 bits, over many groups at once.

A sum is an unevaluated pair ``high + low`` (a double-double). Each value is split without error: a multiple of a coarse
unit, one of a finer unit, and a remainder of about 2^-60. ``np.bincount`` adds the multiples of a group exactly, so the
order of rows does not matter. A retraction leaves no error that a double would show, unless the sum was some 2^45 times
larger before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .groups import Groups

Doubles = npt.NDArray[np.float64]
Pair = tuple[Doubles, Doubles]

_SPLIT = 2.0**27 + 1


def summed(values: Doubles, groups: Groups) -> Pair:
    """Return the sum of each group's finite values. The largest value times the rows must be below 2^1000."""
    if len(values) == 0:
        return np.zeros(groups.size), np.zeros(groups.size)
    largest = np.zeros(groups.size)
    np.maximum.at(largest, groups.codes, np.abs(values))
    room = int(groups.counts.max()).bit_length()
    exponent = np.frexp(largest)[1]
    rest, sums = values, list[Doubles]()
    for _ in range(2):
        # Added and taken away again, 1.5 · 2^52 units round a value to a multiple of the unit. As no value is 2^(52 -
        # room) units or more, fewer than 2^room of them add up to less than 2^52 units: exactly.
        exponent = exponent + room - 52
        unit = np.ldexp(1.5, exponent + 52)[groups.codes]
        on_grid = (rest + unit) - unit
        sums.append(_added(on_grid, groups))
        rest = rest - on_grid
        exponent = exponent - 1
    remainder = _added(rest, groups)
    high, low = _exact_sum(sums[0], sums[1])
    return _exact_sum(high, low + remainder)


def plus(left: Pair, right: Pair) -> Pair:
    """Return the sum of two pairs, to about 2^-104 of the larger one."""
    high, low = _exact_sum(left[0], right[0])
    more, rest = _exact_sum(left[1], right[1])
    high, low = _exact_sum(high, low + more)
    return _exact_sum(high, low + rest)


def minus(left: Pair, right: Pair) -> Pair:
    """Return the difference of two pairs, to about 2^-104 of the larger one."""
    return plus(left, (-right[0], -right[1]))


def times(left: Pair, right: Pair) -> Pair:
    """Return the product of two pairs, to about 2^-102 of it."""
    high, low = _exact_product(left[0], right[0])
    return _exact_sum(high, low + (left[0] * right[1] + left[1] * right[0]))


def over(pair: Pair, divisor: Doubles) -> Pair:
    """Divide a pair by integers that a double holds exactly."""
    quotient = (pair[0] + pair[1]) / divisor
    product, error = _exact_product(quotient, divisor)
    rest = minus(pair, (product, error))
    return _exact_sum(quotient, (rest[0] + rest[1]) / divisor)


def squares(values: Doubles) -> Pair:
    """Return the exact square of each value."""
    return _exact_product(values, values)


def _added(values: Doubles, groups: Groups) -> Doubles:
    return np.bincount(groups.codes, weights=values, minlength=groups.size).astype(np.float64, copy=False)


def _exact_sum(a: Doubles, b: Doubles) -> Pair:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _exact_product(a: Doubles, b: Doubles) -> Pair:
    # Dekker's product: halves of 26 bits have exact products.
    product = a * b
    a_high, b_high = a * _SPLIT, b * _SPLIT
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
