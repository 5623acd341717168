"""Bits of whole numbers in two's complement: operators, shifts like Java's, and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from .arrays import on_arrays
from .building import Builder, Kernel, polars_type
from .coercion import cast, implicit, numbers_of_both
from .kinds import BOOLEAN, BYTE, INT, LONG, NULL, TEXT, is_integral
from .nodes import Call, Expression
from .signatures import Rule, misfit

__all__ = ["BITS", "BIT_RULES"]


def _pair(function: str, arguments: Sequence[Expression]) -> Expression:
    both = numbers_of_both(*arguments) if len(arguments) == 2 else None
    if both is not None and all(each.type == NULL for each in arguments):
        both = cast(arguments[0], INT), cast(arguments[1], INT)
    if both is None or not is_integral(both[0].type):
        conditions = any(each.type == BOOLEAN for each in arguments)
        raise misfit(function, arguments, "two whole numbers", "join conditions with AND, OR and NOT" * conditions)
    return Call(function, both, both[0].type)


def _whole(function: str, value: Expression) -> Expression:
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
    value = _whole(function, arguments[0])
    return Call(function, (value,), value.type)


def _count(function: str, arguments: Sequence[Expression]) -> Expression:
    if len(arguments) != 1:
        raise misfit(function, arguments, "one whole number or condition")
    value = arguments[0] if arguments[0].type == BOOLEAN else _whole(function, arguments[0])
    return Call(function, (value,), INT)


def _get(function: str, arguments: Sequence[Expression]) -> Expression:
    place = implicit(arguments[1], INT) if len(arguments) == 2 else None
    if place is None:
        raise misfit(function, arguments, "a whole number, and the place of a bit in it")
    return Call("bit_get", (_whole(function, arguments[0]), place), BYTE)


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
