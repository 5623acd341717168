"""Arithmetic of whole and floating-point numbers like Java's, with Spark's errors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from .arrays import on_arrays, on_series, quotient
from .building import Builder, Kernel, polars_type
from .decimals import DECIMALS
from .kinds import DOUBLE, DURATION, FLOAT, INT, LONG, is_decimal, is_integral
from .rounding import rounded_doubles, rounded_integers
from .unscaled import int128, negative

__all__ = ["NUMBERS"]

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
    """Compute with doubles. For a constant zero, Polars simplifies ``x + 0.0`` to x and ``0.0 - x`` to -x."""
    zeros = (not each.meta.root_names() and pl.select(each).item() == 0 for each in (left, right))
    if any(zeros):
        return on_arrays(operation, left, right, dtype=polars_type(build.type))
    return operation(left, right)


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
