"""Decimal arithmetic with Spark's precision, scale and rounding: half away from zero, null on overflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from .columnar import Builder, Kernel, on_series
from .kinds import MAX_PRECISION, is_decimal

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


_OVERFLOW = "the result has more digits than its type"
_CAST_NARROWER = "cast the operands to decimals of fewer digits, or use the try_ form, which gives null"
_ZERO = "division by zero"
_NO_ZERO = "divide by nullif(…, 0), or use try_divide, which gives null"
_HALF = 1 << 126

Decimal: TypeAlias = pa.Decimal128Type
Slow = Callable[[int, int], "int | None"]
Operation = Callable[[pl.Expr, pl.Expr, Decimal, Decimal, Decimal], "tuple[pl.Expr, pl.Expr, Slow]"]
"""Computes with the unscaled numbers of two decimals, given their types and the result's type.

Returns the result's unscaled numbers in 128 bits, a mask where these are right, and an exact function for any two.
"""


def _dropped(number: int, digits: int) -> int:
    """Remove a number's last digits, rounding half away from zero."""
    if digits <= 0:
        return number * 10**-digits
    unit = 10**digits
    size = (abs(number) + unit // 2) // unit
    return size if number >= 0 else -size


def _signed(size: int, left: int, right: int) -> int:
    return size if (left < 0) == (right < 0) else -size


def _aligned(one: Decimal, two: Decimal) -> tuple[int, int, pl.Expr]:
    """Return the powers of ten that bring two decimals to one scale, and the limit below which both fit in 128 bits."""
    scale = max(one.scale, two.scale)
    return 10 ** (scale - one.scale), 10 ** (scale - two.scale), int128(_HALF // 10 ** abs(one.scale - two.scale))


def _add(left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal) -> tuple[pl.Expr, pl.Expr, Slow]:
    first, second, limit = _aligned(one, two)
    drop = max(one.scale, two.scale) - result.scale
    fast = divided_half_up(left * int128(first) + right * int128(second), drop)
    fits = (left.abs() < limit) & (right.abs() < limit)
    return fast, fits, lambda a, b: _dropped(a * first + b * second, drop)


def _subtract(
    left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal
) -> tuple[pl.Expr, pl.Expr, Slow]:
    fast, fits, slow = _add(left, int128(0) - right, one, two, result)
    return fast, fits, lambda a, b: slow(a, -b)


def _multiply(
    left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal
) -> tuple[pl.Expr, pl.Expr, Slow]:
    drop = one.scale + two.scale - result.scale
    fits = left.abs().cast(pl.Float64) * right.abs().cast(pl.Float64) < 0.99 * LIMIT

    return divided_half_up(left * right, drop), fits, lambda a, b: _dropped(a * b, drop)


def _divide(
    left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal
) -> tuple[pl.Expr, pl.Expr, Slow]:
    shift = result.scale + two.scale - one.scale
    size, divisor = left.abs(), right.abs()
    if shift > 37:  # no dividend would fit
        return int128(0) * left, pl.lit(value=False), _exact_quotient(shift)
    fits = size < int128(_HALF // 10**shift)
    number = size * int128(10**shift)
    rest = number % divisor
    fast = negative(number // divisor + (rest >= divisor - rest).cast(pl.Int128), (left < 0) != (right < 0))
    return fast, fits, _exact_quotient(shift)


def _exact_quotient(shift: int) -> Slow:
    def slow(a: int, b: int) -> int:
        return _signed((2 * abs(a) * 10**shift + abs(b)) // (2 * abs(b)), a, b)

    return slow


def _mod(left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal) -> tuple[pl.Expr, pl.Expr, Slow]:
    first, second, limit = _aligned(one, two)
    drop = max(one.scale, two.scale) - result.scale
    size = (left.abs() * int128(first)) % (right.abs() * int128(second))
    fast = divided_half_up(negative(size, left < 0), drop)

    def slow(a: int, b: int) -> int | None:
        number, divisor = abs(a) * first, abs(b) * second
        if number // divisor >= 10 * LIMIT and len(str(number // divisor).rstrip("0")) > MAX_PRECISION + 1:
            return None  # Java gives up, too
        return _dropped(number % divisor if a >= 0 else -(number % divisor), drop)

    return fast, (left.abs() < limit) & (right.abs() < limit), slow


def _pmod(left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, result: Decimal) -> tuple[pl.Expr, pl.Expr, Slow]:
    first, second, limit = _aligned(one, two)
    drop = max(one.scale, two.scale) - result.scale
    divisor = right.abs() * int128(second)
    rest = negative((left.abs() * int128(first)) % divisor, left < 0)
    shifted = rest + right * int128(second)
    again = negative(shifted.abs() % divisor, shifted < 0)
    fast = divided_half_up(pl.when(rest < 0).then(again).otherwise(rest), drop)
    remainder = _mod(left, right, one, two, pa.decimal128(38, max(one.scale, two.scale)))[2]

    def slow(a: int, b: int) -> int | None:
        rest = remainder(a, b)
        if rest is None or rest >= 0:
            return None if rest is None else _dropped(rest, drop)
        shifted = rest + b * second
        size = abs(shifted) % (abs(b) * second)
        return _dropped(size if shifted >= 0 else -size, drop)

    return fast, (left.abs() < limit) & (right.abs() < limit), slow


def _div(left: pl.Expr, right: pl.Expr, one: Decimal, two: Decimal, _: Decimal) -> tuple[pl.Expr, pl.Expr, Slow]:
    first, second, limit = _aligned(one, two)
    size = (left.abs() * int128(first)) // (right.abs() * int128(second))
    fast = negative(size, (left < 0) != (right < 0))

    def slow(a: int, b: int) -> int:
        return _signed(abs(a) * first // (abs(b) * second), a, b)

    return fast, (left.abs() < limit) & (right.abs() < limit), slow


def _computed(build: Builder, operation: Operation, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    one, two = (each.type for each in build.call.arguments)
    left, right = build.share(unscaled(left)), build.share(unscaled(right))
    found = build.share(exact_decimals(*operation(left, right, one, two, build.type), left, right))
    return as_decimals(found, build.type) if is_decimal(build.type) else found.cast(pl.Int64, strict=False)


def _exact(operation: Operation) -> Kernel:
    def kernel(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
        return build.strict(_computed(build, operation, left, right), _OVERFLOW, _CAST_NARROWER)

    return kernel


def _by_divisor(operation: Operation) -> Kernel:
    def kernel(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
        left, right = build.share(left), build.share(right)
        zero = unscaled(right) == 0
        build.fail(zero & left.is_not_null(), _ZERO, _NO_ZERO)
        found = build.share(_computed(build, operation, left, pl.when(~zero).then(right)))
        missing = found.is_null() & left.is_not_null() & ~zero
        if is_decimal(build.type):
            build.fail(missing, _OVERFLOW, _CAST_NARROWER)
        else:  # Spark keeps the last 64 bits
            build.fail(missing, "the whole quotient fits no BIGINT", "use floor(a / b)", lasting=True)
        return found

    return kernel


def _negate(build: Builder, value: pl.Expr) -> pl.Expr:
    return _fitting(build, in_java_digits(int128(0) - unscaled(value), build.type.precision))


def _abs(build: Builder, value: pl.Expr) -> pl.Expr:
    numbers = build.share(unscaled(value))
    made = in_java_digits(int128(0) - numbers, build.type.precision)  # a positive number keeps all digits
    return _fitting(build, pl.when(numbers < 0).then(made).otherwise(numbers))


def _fitting(build: Builder, numbers: pl.Expr) -> pl.Expr:
    """Return decimals. Minus 38 nines overflows, because Java rounds it to 34 digits."""
    made = as_decimals(build.share(numbers), build.type)
    return build.strict(made, "the result has too many digits", "cast the operand to fewer digits")


def _towards(*, up: bool) -> Kernel:
    def kernel(build: Builder, value: pl.Expr) -> pl.Expr:
        unit = int128(10 ** build.call.arguments[0].type.scale)
        numbers = build.share(unscaled(value))
        found = numbers // unit  # rounded down
        if up:
            found += (numbers % unit != 0).cast(pl.Int128)
        return as_decimals(build.share(found), build.type)

    return kernel


def _round(build: Builder, value: pl.Expr, places: pl.Expr) -> pl.Expr:  # noqa: ARG001 it is a constant
    digits, even = build.constant(1, "the number of digits"), build.call.function == "bround"
    given: Decimal = build.call.arguments[0].type
    drop = given.scale - min(digits, given.scale)
    numbers = build.share(unscaled(value))
    found = _half_even(numbers, drop) if even else divided_half_up(numbers, drop)
    made = build.share(scaled(build.share(found), max(0, -digits)))
    return build.strict(as_decimals(made, build.type), _OVERFLOW, _CAST_NARROWER)


def _half_even(numbers: pl.Expr, digits: int) -> pl.Expr:
    if digits == 0 or digits > 38:
        return divided_half_up(numbers, digits)
    return divided_half_even(numbers, int128(10**digits))


DECIMALS: Mapping[str, Kernel] = {
    "add": _exact(_add),
    "subtract": _exact(_subtract),
    "multiply": _exact(_multiply),
    "divide": _by_divisor(_divide),
    "div": _by_divisor(_div),
    "mod": _by_divisor(_mod),
    "pmod": _by_divisor(_pmod),
    "negate": _negate,
    "abs": _abs,
    "floor": _towards(up=False),
    "ceil": _towards(up=True),
    "round": _round,
    "bround": _round,
}
