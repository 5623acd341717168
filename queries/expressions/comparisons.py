"""Comparisons of Polars, which are Spark's: text by bytes, NaN equal to itself and the greatest, -0.0 equal to 0.0."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from .building import Builder, Kernel

__all__ = ["COMPARISONS"]


def _greatest(build: Builder, *values: pl.Expr) -> pl.Expr:
    return _extreme(build, values, greatest=True)


def _least(build: Builder, *values: pl.Expr) -> pl.Expr:
    return _extreme(build, values, greatest=False)


def _extreme(build: Builder, values: tuple[pl.Expr, ...], *, greatest: bool) -> pl.Expr:
    """Return the extreme of the non-null values; among equal ones, the first."""
    best = values[0]
    for each in values[1:]:
        one, two = build.share(best), build.share(each)
        better = two > one if greatest else two < one
        best = pl.when(one.is_null() | better).then(two).otherwise(one)
    return best


COMPARISONS: Mapping[str, Kernel] = {
    "eq": lambda _, left, right: left == right,
    "ne": lambda _, left, right: left != right,
    "lt": lambda _, left, right: left < right,
    "le": lambda _, left, right: left <= right,
    "gt": lambda _, left, right: left > right,
    "ge": lambda _, left, right: left >= right,
    "eq_null_safe": lambda _, left, right: left.eq_missing(right),
    "is_null": lambda _, value: value.is_null(),
    "is_not_null": lambda _, value: value.is_not_null(),
    "isnan": lambda _, value: value.is_nan().fill_null(value=False),
    "greatest": _greatest,
    "least": _least,
}
