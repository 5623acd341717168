"""Arithmetic of whole and floating-point numbers like Java's, with Spark's errors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from .coercion import Rule, cast, implicit, misfit, numbers_of_both
from .columnar import Builder, Kernel, on_arrays, on_series, polars_type, quotient
from .decimals import DECIMALS, int128, negative
from .kinds import BOOLEAN, BYTE, DOUBLE, DURATION, FLOAT, INT, LONG, NULL, TEXT, is_decimal, is_integral
from .nodes import Call, Expression, Field

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


_OVERFLOW = "the result does not fit its type"
_ZERO = "division by zero"
_CAST_WIDER = (
    "cast an operand to a wider type, such as BIGINT or DECIMAL(38, 0), or use the try_ form, which gives null"
)
_NO_ZERO = "divide by nullif(…, 0), or use try_divide, which gives null"


def _wide(build: Builder, *values: pl.Expr) -> list[pl.Expr]:
    """Return whole numbers in a type with exact sums and products; narrowing then turns overflow into null."""
    dtype = pl.Int128 if build.type in (LONG, DURATION) else pl.Int64
    return [each.cast(dtype) for each in values]


def _narrow(build: Builder, values: pl.Expr) -> pl.Expr:
    dtype = pl.Int64 if build.type == DURATION else polars_type(build.type)
    values = build.strict(values.cast(dtype, strict=False), _OVERFLOW, _CAST_WIDER)
    return values.cast(pl.Duration("us")) if build.type == DURATION else values


def _exact(operation: Callable[[Any, Any], Any]) -> Kernel:
    def kernel(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
        if build.type == DURATION:
            left, right = left.cast(pl.Int64), right.cast(pl.Int64)
        elif not is_integral(build.type):
            return _without_shortcuts(build, operation, left, right)
        return _narrow(build, operation(*_wide(build, left, right)))

    return kernel


def _add_all(build: Builder, *values: pl.Expr) -> pl.Expr:
    """Add numbers of one type from left to right; fail if any partial sum overflows."""
    if build.type in (FLOAT, DOUBLE):
        return on_arrays(lambda *arrays: reduce(operator.add, arrays), *values, dtype=polars_type(build.type))
    dtype = pl.Int64 if build.type == DURATION else polars_type(build.type)
    limits = np.iinfo(np.int64 if build.type == DURATION else f"int{build.type.bit_width}")

    def exact(*series: pl.Series) -> pl.Series:
        total = np.zeros(len(series[0]), np.int64)
        fails, nothing = np.zeros(len(total), np.bool_), np.zeros(len(total), np.bool_)
        for each in series:
            other = each.fill_null(0).cast(pl.Int64).to_numpy()
            nothing |= each.is_null().to_numpy()  # from here on, the sum is null and does not overflow
            wrapped = total + other
            over = ((total ^ wrapped) & (other ^ wrapped)) < 0
            fails |= (over | (wrapped < limits.min) | (wrapped > limits.max)) & ~nothing
            total = wrapped
        totals = pl.Series(np.where(fails | nothing, 0, total)).cast(dtype).set(pl.Series(fails | nothing), None)
        return pl.DataFrame([totals.alias("total"), pl.Series("fails", fails)]).to_struct()

    if build.type == DURATION:
        values = tuple(each.cast(pl.Int64) for each in values)
    both = build.share(on_series(exact, *values, dtype=pl.Struct({"total": dtype, "fails": pl.Boolean()})))
    build.fail(both.struct.field("fails"), _OVERFLOW, _CAST_WIDER)
    found = both.struct.field("total")
    return found.cast(pl.Duration("us")) if build.type == DURATION else found


def _without_shortcuts(build: Builder, operation: Callable[[Any, Any], Any], left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Compute with doubles. For zeros in a batch, Polars simplifies ``x + 0.0`` to x, and ``0.0 - x`` to -x."""
    if all(isinstance(each, Field) for each in build.call.arguments):
        return operation(left, right)
    return on_arrays(operation, left, right, dtype=polars_type(build.type))


def _no_zero(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Fail for a divisor of zero; return the divisor, null where it is zero."""
    right = build.share(right)
    build.fail((right == 0) & left.is_not_null(), _ZERO, _NO_ZERO)
    return pl.when(right != 0).then(right)


def _divide(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return quotient(left, _no_zero(build, left, right))


def _whole_division(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    left = build.share(left)
    divisor = build.share(_no_zero(build, left, right).cast(pl.Int128))
    wide = left.cast(pl.Int128)
    size = negative(wide.abs() // divisor.abs(), (wide < 0) != (divisor < 0))
    found = build.share(size.cast(pl.Int64, strict=False))
    build.fail(found.is_null() & left.is_not_null() & divisor.is_not_null(), _OVERFLOW, _CAST_WIDER)
    return found


def _remainder(wide: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Return the remainder of a division towards zero, with the dividend's sign."""
    return negative((wide.abs() % divisor.abs()).cast(pl.Int128), wide < 0)


def _mod(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    divisor = _no_zero(build, left, right)
    if not is_integral(build.type):
        return on_arrays(np.fmod, left, divisor, dtype=polars_type(build.type))
    wide = [build.share(each) for each in _wide(build, left, divisor)]
    return _remainder(*wide).cast(polars_type(build.type))


def _pmod(build: Builder, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    divisor = _no_zero(build, left, right)
    if not is_integral(build.type):
        return on_arrays(_float_pmod, left, divisor, dtype=polars_type(build.type))
    wide, other = (build.share(each) for each in _wide(build, left, divisor))
    rest = build.share(_remainder(wide, other))
    total = rest.cast(pl.Int128) + other
    if build.type in (INT, LONG):  # Java's sum wraps around
        half = 1 << (build.type.bit_width - 1)
        total = (total + int128(half)) % int128(2 * half) - int128(half)
    return pl.when(rest < 0).then(_remainder(total, other)).otherwise(rest).cast(polars_type(build.type))


def _float_pmod(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    rest = np.fmod(left, right)
    return np.where(rest < 0, np.fmod(rest + right, right), rest)


def _negate(build: Builder, value: pl.Expr) -> pl.Expr:
    if build.type in (FLOAT, DOUBLE):
        return value * -1.0  # of 0.0, that is -0.0
    if build.type == DURATION:
        value = value.cast(pl.Int64)
    return _narrow(build, 0 - _wide(build, value)[0])


def _abs(build: Builder, value: pl.Expr) -> pl.Expr:
    if build.type == DURATION:
        value = value.cast(pl.Int64)
    return value.abs() if build.type in (FLOAT, DOUBLE) else _narrow(build, _wide(build, value)[0].abs())


def _floor(build: Builder, value: pl.Expr) -> pl.Expr:
    return _whole(build, value, value.floor())


def _ceil(build: Builder, value: pl.Expr) -> pl.Expr:
    return _whole(build, value, value.ceil())


def _whole(build: Builder, value: pl.Expr, rounded: pl.Expr) -> pl.Expr:
    """Return a double as a BIGINT like Java's cast: 0 for NaN, and the nearest BIGINT beyond the range."""
    value = build.share(value)
    limits = np.iinfo(np.int64)
    found = pl.when(value.is_nan()).then(pl.lit(0, dtype=pl.Int64))
    found = found.when(value >= 2.0**63).then(pl.lit(limits.max, dtype=pl.Int64))
    found = found.when(value < -(2.0**63)).then(pl.lit(limits.min, dtype=pl.Int64))
    return found.otherwise(rounded.cast(pl.Int64, strict=False))


def _sign(build: Builder, value: pl.Expr) -> pl.Expr:
    value = build.share(value)
    found = pl.when(value.is_nan() | (value == 0)).then(value)
    return found.when(value > 0).then(pl.lit(1.0)).when(value < 0).then(pl.lit(-1.0))


def _power(_: Builder, base: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    return on_arrays(_java_power, base, exponent, dtype=pl.Float64)


def _java_power(base: npt.NDArray[Any], exponent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    undefined = (np.abs(base) == 1) & (np.isinf(exponent) | np.isnan(exponent))  # for which C returns 1
    return np.where(undefined, np.nan, np.power(base, exponent))


def _logarithm(function: Callable[..., Any]) -> Kernel:
    def kernel(build: Builder, value: pl.Expr) -> pl.Expr:
        value = build.share(value)
        return on_arrays(function, pl.when(value > 0).then(value), dtype=pl.Float64)

    return kernel


def _log2(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.log(values) / np.log(2.0)  # as Spark does


def _round(build: Builder, value: pl.Expr, places: pl.Expr) -> pl.Expr:  # noqa: ARG001 it is a constant
    digits, even = build.constant(1, "the number of digits"), build.call.function == "bround"
    if is_integral(build.type):
        if digits >= 0:
            return value
        return _narrow(build, rounded_integers(value.cast(pl.Int128), -digits, even=even))
    return rounded_doubles(value, digits, even=even, single=build.type == FLOAT)


def _by_type(name: str, other: Kernel) -> Kernel:

    def kernel(build: Builder, *operands: pl.Expr) -> pl.Expr:
        return (DECIMALS[name] if is_decimal(build.call.arguments[0].type) else other)(build, *operands)

    return kernel


_PLAIN: Mapping[str, Kernel] = {
    "add": _exact(lambda left, right: left + right),
    "subtract": _exact(lambda left, right: left - right),
    "multiply": _exact(lambda left, right: left * right),
    "divide": _divide,
    "div": _whole_division,
    "mod": _mod,
    "pmod": _pmod,
    "negate": _negate,
    "abs": _abs,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "bround": _round,
}

NUMBERS: Mapping[str, Kernel] = {
    **{name: _by_type(name, kernel) for name, kernel in _PLAIN.items()},
    "add_all": _add_all,
    "sign": _sign,
    "sqrt": lambda _, value: value.sqrt(),
    "exp": lambda _, value: on_arrays(np.exp, value, dtype=pl.Float64),
    "ln": _logarithm(np.log),
    "log10": _logarithm(np.log10),
    "log2": _logarithm(_log2),
    "power": _power,
}


def _pair(function: str, arguments: Sequence[Expression]) -> Expression:
    both = numbers_of_both(*arguments) if len(arguments) == 2 else None
    if both is not None and all(each.type == NULL for each in arguments):
        both = cast(arguments[0], INT), cast(arguments[1], INT)
    if both is None or not is_integral(both[0].type):
        conditions = any(each.type == BOOLEAN for each in arguments)
        raise misfit(function, arguments, "two whole numbers", "join conditions with AND, OR and NOT" * conditions)
    return Call(function, both, both[0].type)


def _as_whole(function: str, value: Expression) -> Expression:
    """Return an argument that must be a whole number; Spark casts nothing else to one."""
    if value.type == NULL:
        return cast(value, INT)
    if not is_integral(value.type):
        hint = "cast the text to a whole number" if value.type == TEXT else ""
        raise misfit(function, [value], "a whole number", hint)
    return value


def _not(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "one whole number")
    value = _as_whole(function, arguments[0])
    return Call(function, (value,), value.type)


def _count(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "one whole number or condition")
    value = arguments[0] if arguments[0].type == BOOLEAN else _as_whole(function, arguments[0])
    return Call(function, (value,), INT)


def _get(function: str, arguments: Sequence[Expression]) -> Expression:
    place = implicit(arguments[1], INT) if len(arguments) == 2 else None
    if place is None:
        raise misfit(function, arguments, "a whole number, and the place of a bit in it")
    return Call("bit_get", (_as_whole(function, arguments[0]), place), BYTE)


def _shift(function: str, arguments: Sequence[Expression]) -> Expression:
    places = implicit(arguments[1], INT) if len(arguments) == 2 else None
    value = arguments[0] if arguments else None
    if value is not None and value.type != LONG:
        value = implicit(value, INT)
    if value is None or places is None:
        raise misfit(function, arguments, "an INT or BIGINT, and by how many bits to shift it")
    return Call(function, (value, places), value.type)


BIT_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _pair),
    **dict.fromkeys(("shiftleft", "shiftright", "shiftrightunsigned"), _shift),
    **dict.fromkeys(("bit_get", "getbit"), _get),
    "bitwise_not": _not,
    "bit_count": _count,
}


def _complement(build: Builder, value: pl.Expr) -> pl.Expr:
    return pl.lit(-1, dtype=polars_type(build.type)) - value


def _ones(build: Builder, value: pl.Expr) -> pl.Expr:
    if build.call.arguments[0].type == BOOLEAN:
        return value.cast(pl.Int32)
    return value.cast(pl.Int64).bitwise_count_ones().cast(pl.Int32)  # of all 64 bits, as Java does


def _bit(build: Builder, value: pl.Expr, place: pl.Expr) -> pl.Expr:
    width = build.call.arguments[0].type.bit_width
    place = build.share(place)
    inside = place.is_between(0, width - 1)
    build.fail(~inside & value.is_not_null(), "there is no such bit", f"number the bits from 0 to {width - 1}")
    found = on_arrays(lambda bits, at: bits >> at & 1, value.cast(pl.Int64), place.cast(pl.Int64), dtype=pl.Int8)
    return pl.when(inside).then(found)


def _shifted(function: Callable[..., npt.NDArray[Any]]) -> Kernel:
    """Return the kernel of a shift. Like Java, it uses the last 5 bits of the count, or 6 for a BIGINT."""

    def kernel(build: Builder, value: pl.Expr, places: pl.Expr) -> pl.Expr:
        last = build.type.bit_width - 1

        def run(bits: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return function(bits, by.astype(bits.dtype) & last)

        return on_arrays(run, value, places, dtype=polars_type(build.type))

    return kernel


def _unsigned(bits: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    unsigned = f"u{bits.dtype.itemsize}"
    return (bits.view(unsigned) >> by.astype(unsigned)).view(bits.dtype)


BITS: Mapping[str, Kernel] = {
    "bitwise_and": lambda _, left, right: left & right,
    "bitwise_or": lambda _, left, right: left | right,
    "bitwise_xor": lambda _, left, right: left ^ right,
    "bitwise_not": _complement,
    "bit_count": _ones,
    "bit_get": _bit,
    "shiftleft": _shifted(np.left_shift),
    "shiftright": _shifted(np.right_shift),
    "shiftrightunsigned": _shifted(_unsigned),
}
