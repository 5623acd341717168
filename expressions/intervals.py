"""Intervals of days and time as values: times numbers, made of parts, and their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ..conf.errors import SchemaError
from .calendar import DAY, SECOND
from .coercion import cast, implicit, misfit
from .columnar import Builder, Kernel, on_arrays
from .decimals import as_decimals, divided_half_up, int128, negative, scaled, unscaled
from .kinds import BYTE, DOUBLE, DURATION, INT, LONG, MONTHS, NULL, is_decimal, is_integral, is_number
from .nodes import Call, Constant, Expression

_MOST_DIGITS = 18
_SECONDS = pa.decimal128(18, 6)
_TOO_LONG = "the interval does not fit its type"
_PARTS: Mapping[str, tuple[int, int, pa.DataType]] = {
    "day": (DAY, 1 << 40, INT),
    "hour": (3600 * SECOND, 24, BYTE),
    "minute": (60 * SECOND, 60, BYTE),
    "second": (1, 60 * SECOND, pa.decimal128(8, 6)),
}


def times(function: str, left: Expression, right: Expression) -> Expression | None:
    """Return an interval multiplied or divided by a number; None for other operands."""
    if function == "multiply" and right.type == DURATION:
        left, right = right, left
    if function not in ("multiply", "divide") or left.type != DURATION:
        return None
    if is_integral(right.type) or right.type == NULL:
        number = cast(right, LONG)
        return Call(function if function == "multiply" else "divide_interval", (left, number), DURATION)
    if is_decimal(right.type) and right.type.precision > _MOST_DIGITS:
        raise misfit(function, (left, right), f"a number of at most {_MOST_DIGITS} digits", "cast it to DOUBLE")
    if not is_number(right.type):
        return None
    number = right if is_decimal(right.type) else cast(right, DOUBLE)
    return Call(f"{function}_interval", (left, number), DURATION)


def of_months(function: str, left: Expression, right: Expression) -> Expression | None:
    """Return a sum, difference or multiple of constant intervals of months; None for other operands."""
    one, two = (_constant_months(each) for each in (left, right))
    if function == "multiply" and one is None:
        left, right, one, two = right, left, two, one
    if one is None:
        return None
    if function == "multiply" and isinstance(right, Constant) and is_integral(right.type):
        return _months(one * int(right.value or 0)) if right.value is not None else None
    if two is None or function not in ("add", "subtract"):
        return None
    return _months(one + two if function == "add" else one - two)


def _constant_months(value: Expression) -> int | None:
    if not isinstance(value, Constant) or value.type != MONTHS or value.value is None or any(value.value[1:]):
        return None
    return int(value.value[0])


def _months(months: int) -> Expression:
    if abs(months) >= 2**31:
        raise SchemaError("this interval is longer than Spark can hold")
    return Constant((months, 0, 0), MONTHS)


def _make_of_months(function: str, arguments: Sequence[Expression]) -> Expression:
    given = [each.value for each in arguments if isinstance(each, Constant) and is_integral(each.type)]
    if len(given) < len(arguments) or len(given) > 2 or None in given:
        raise misfit(function, arguments, f"constants: {function}([years[, months]])", "add_months(t, n) adds a column")
    years, months, *_ = [*map(int, given), 0, 0]
    return _months(12 * years + months)


def part_of(name: str, interval: Expression) -> Expression:
    """Return the part of an interval that EXTRACT names."""
    word = name.lower().removesuffix("s")
    if word not in _PARTS:
        raise SchemaError(f"an interval of days and time has no {name.lower()}", expected="DAY, HOUR, MINUTE or SECOND")
    return Call(f"interval_{word}", (interval,), _PARTS[word][2])


def _make(function: str, arguments: Sequence[Expression]) -> Expression:
    takes = (INT, INT, INT, _SECONDS)
    given = [*arguments, *(Constant(0, INT) for _ in takes[len(arguments) :])]
    made = [implicit(value, dtype) for value, dtype in zip(given, takes, strict=False)]
    if len(given) > len(takes) or None in made:
        raise misfit(function, arguments, f"{function}([days[, hours[, minutes[, seconds]]]])")
    return Call(function, tuple(each for each in made if each is not None), DURATION)


INTERVAL_RULES = {"make_dt_interval": _make, "make_ym_interval": _make_of_months}


def _fitting(build: Builder, micros: pl.Expr) -> pl.Expr:
    return build.strict(micros.cast(pl.Int64, strict=False), _TOO_LONG).cast(pl.Duration("us"))


def _micros(interval: pl.Expr) -> pl.Expr:
    return interval.cast(pl.Int64).cast(pl.Int128)


def _half_up(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round half away from zero."""
    nearest = np.rint(numbers)
    return np.where(np.abs(numbers - nearest) == 0.5, numbers + np.copysign(0.5, numbers), nearest)


def _rounded(build: Builder, values: pl.Expr) -> pl.Expr:
    values = build.share(on_arrays(_half_up, values, dtype=pl.Float64))
    return _fitting(build, pl.when(values.is_finite() & (values.abs() < 2.0**63)).then(values))


def _multiply(build: Builder, interval: pl.Expr, number: pl.Expr) -> pl.Expr:
    kind = build.call.arguments[1].type
    if kind == DOUBLE:
        return _rounded(build, interval.cast(pl.Int64).cast(pl.Float64) * number)
    return _fitting(build, divided_half_up(_micros(interval) * unscaled(number), kind.scale))


def _divide(build: Builder, interval: pl.Expr, number: pl.Expr) -> pl.Expr:
    kind = build.call.arguments[1].type
    number = build.share(number)
    zero = (number == 0) & interval.is_not_null()
    build.fail(zero, "division by zero", "divide by nullif(…, 0)")
    known = pl.when(number != 0).then(number)
    if kind == DOUBLE:
        values = on_arrays(np.divide, interval.cast(pl.Int64).cast(pl.Float64), known.fill_null(1.0), dtype=pl.Float64)
        return _rounded(build, pl.when(known.is_not_null()).then(values))
    above, below = _micros(interval), known.cast(pl.Int128)
    if is_decimal(kind):
        above, below = scaled(above, kind.scale), unscaled(known)
    size, by = build.share(above.abs()), build.share(below.abs())
    rest = size % by
    quotient = negative(size // by + (rest >= by - rest).cast(pl.Int128), (above < 0) != (below < 0))
    return _fitting(build, quotient)


def _made(build: Builder, days: pl.Expr, hours: pl.Expr, minutes: pl.Expr, seconds: pl.Expr) -> pl.Expr:
    sizes = (DAY, 3600 * SECOND, 60 * SECOND)
    whole = (each.cast(pl.Int128) * int128(size) for each, size in zip((days, hours, minutes), sizes, strict=True))
    return _fitting(build, sum(whole, unscaled(seconds)))


def _part(name: str) -> Kernel:
    size, count, dtype = _PARTS[name]

    def kernel(_: Builder, interval: pl.Expr) -> pl.Expr:
        micros = _micros(interval)
        found = negative(micros.abs() // int128(size) % int128(count), micros < 0)
        if is_decimal(dtype):
            return as_decimals(found, dtype)
        return found.cast(pl.Int32 if dtype == INT else pl.Int8)

    return kernel


INTERVALS: Mapping[str, Kernel] = {
    "multiply_interval": _multiply,
    "divide_interval": _divide,
    "make_dt_interval": _made,
    "interval_micros": lambda _, interval: interval.cast(pl.Int64),
    "interval_of_micros": lambda _, micros: micros.cast(pl.Duration("us")),
    **{f"interval_{name}": _part(name) for name in _PARTS},
}
