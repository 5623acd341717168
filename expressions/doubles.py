"""Functions of floating-point numbers, like Java's: roots, logarithms, powers and angles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from .coercion import Rule, Signature, implicit, misfit
from .columnar import Builder, Kernel, on_arrays
from .kinds import DOUBLE, INT, LONG
from .nodes import Call, Constant, Expression

_ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_INVERSE = {"sec": np.cos, "csc": np.sin, "cot": np.tan}
_OTHERS = ("cbrt", "expm1", "degrees", "radians", "rint")


def _constant(value: float) -> Rule:
    def rule(function: str, arguments: Sequence[Expression]) -> Expression:
        if arguments:
            raise misfit(function, arguments, f"{function}()")
        return Constant(value, DOUBLE)

    return rule


def _log(function: str, arguments: Sequence[Expression]) -> Expression:
    made = [implicit(each, DOUBLE) for each in arguments]
    if None in made or not 1 <= len(made) <= 2:
        raise misfit(function, arguments, "a number, or the base and a number")
    given = tuple(each for each in made if each is not None)
    return Call("ln" if len(given) == 1 else "log", given, DOUBLE)


DOUBLE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*_ANGLES, *_INVERSE, *_OTHERS, "log1p"), Signature(DOUBLE, (DOUBLE,))),
    **dict.fromkeys(("atan2", "hypot", "nanvl"), Signature(DOUBLE, (DOUBLE, DOUBLE))),
    "log": _log,
    "pi": _constant(math.pi),
    "e": _constant(math.e),
    "factorial": Signature(LONG, (INT,)),
    "width_bucket": Signature(LONG, (DOUBLE, DOUBLE, DOUBLE, LONG)),
}


def _of(function: Callable[..., npt.NDArray[Any]]) -> Kernel:
    return lambda _, *values: on_arrays(function, *values, dtype=pl.Float64)


def _logarithm(function: Callable[..., npt.NDArray[Any]], above: float) -> Kernel:
    def kernel(build: Builder, *values: pl.Expr) -> pl.Expr:
        shared = [build.share(each) for each in values]
        usable = pl.all_horizontal((each > above) | each.is_nan() for each in shared)
        return on_arrays(function, *(pl.when(usable).then(each) for each in shared), dtype=pl.Float64)

    return kernel


def _log_to_base(base: npt.NDArray[Any], value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.log(value) / np.log(base)


def _cube_root(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return cube roots. A step of Newton's method makes that of 27 exactly 3."""
    root = np.cbrt(values)
    better = root - (root * root * root - values) / (3 * root * root)
    return np.where(np.isfinite(better), better, root)


def _factorial(_: Builder, value: pl.Expr) -> pl.Expr:
    table = pl.Series([math.factorial(each) for each in range(21)], dtype=pl.Int64)
    return value.replace_strict(pl.Series(range(21), dtype=pl.Int32), table, default=None, return_dtype=pl.Int64)


def _width_bucket(build: Builder, value: pl.Expr, low: pl.Expr, high: pl.Expr, count: pl.Expr) -> pl.Expr:
    value, low, high, count = (build.share(each) for each in (value, low, high, count))
    real = pl.all_horizontal(~low.is_nan(), ~high.is_nan(), low.is_finite(), high.is_finite(), ~value.is_nan())
    usable = real & (count > 0) & (count < 2**63 - 1) & (low != high)

    def run(
        value: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any], count: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        up = low < high
        first, last = np.minimum(low, high), np.maximum(low, high)
        share = np.where(up, value - low, low - value)
        inside = (count.astype(np.float64) * share / (last - first)).astype(np.int64) + 1
        before, behind = np.where(up, value < first, value > last), np.where(up, value >= last, value <= first)
        return np.where(before, 0, np.where(behind, count + 1, inside))

    return on_arrays(run, pl.when(usable).then(value), low, high, count, dtype=pl.Int64)


DOUBLES: Mapping[str, Kernel] = {
    **{
        name: _of(getattr(np, {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(name, name)))
        for name in _ANGLES
    },
    **{name: _of(lambda values, of=of: 1.0 / of(values)) for name, of in _INVERSE.items()},
    "cbrt": _of(_cube_root),
    "expm1": _of(np.expm1),
    "degrees": _of(lambda values: values * (180.0 / math.pi)),
    "radians": _of(lambda values: values * (math.pi / 180.0)),
    "rint": _of(np.rint),
    "log1p": _logarithm(np.log1p, -1.0),
    "log": _logarithm(_log_to_base, 0.0),
    "atan2": _of(lambda y, x: np.arctan2(y + 0.0, x + 0.0)),  # without the sign of a zero, as in Spark
    "hypot": _of(np.hypot),
    "factorial": _factorial,
    "width_bucket": _width_bucket,
}
