"""Fields of structs and elements of arrays."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from .building import Builder, Kernel, polars_type

__all__ = ["NESTED"]


def _get_field(build: Builder, struct: pl.Expr, _: pl.Expr) -> pl.Expr:
    name = build.constant(1, "the field's name")
    return pl.when(build.share(struct).is_not_null()).then(build.share(struct).struct.field(name))


def _get(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    index = build.share(index)
    return array.list.get(pl.when(index >= 0).then(index), null_on_oob=True)


def _get_item(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    array, index = build.share(array), build.share(index)
    outside = (index < 0) | (index >= array.list.len().cast(pl.Int64))
    build.fail(outside, "the array has no such element", "use get(array, index), which gives null there")
    return _get(build, array, index)


def _element_at(build: Builder, array: pl.Expr, index: pl.Expr) -> pl.Expr:
    array, index = build.share(array), build.share(index)
    zero = (index == 0) & array.is_not_null()
    build.fail(zero, "element 0 is asked for", "count elements from 1, or from -1", lasting=True)
    size = array.list.len().cast(pl.Int64)
    build.fail(index.abs() > size, "the array is shorter", "use try_element_at(array, index), which gives null there")
    place = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
    return array.list.get(place, null_on_oob=True)


def _contains(build: Builder, array: pl.Expr, value: pl.Expr) -> pl.Expr:
    array, value = build.share(array), build.share(value)
    found = build.share(array.list.contains(value))
    unsure = ~found & array.list.contains(pl.lit(None, dtype=polars_type(build.call.arguments[1].type)))
    return pl.when(array.is_not_null() & value.is_not_null() & ~unsure).then(found)


def _join(build: Builder, array: pl.Expr, *_: pl.Expr) -> pl.Expr:
    between = build.constant(1, "what to put between")
    instead = build.constant(2, "what to put for null") if len(build.call.arguments) > 2 else None
    if between is None or (instead is None and len(build.call.arguments) > 2):
        return build.nothing(pl.lit("")).cast(pl.String)
    kept = array.list.drop_nulls() if instead is None else array.list.eval(pl.element().fill_null(instead))
    return kept.list.join(between)


NESTED: Mapping[str, Kernel] = {
    "get_field": _get_field,
    "get": _get,
    "get_item": _get_item,
    "element_at": _element_at,
    "array_contains": _contains,
    "array_join": _join,
    "size": lambda _, array: array.list.len().cast(pl.Int32),
}
