"""Positions in text, and the parts around them. Characters count from 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from ...conf.errors import SchemaError
from .building import Builder, Kernel
from .coercion import implicit
from .kinds import BINARY, INT, TEXT
from .nodes import Call, Constant, Expression
from .signatures import Rule, Signature, misfit

__all__ = ["POSITIONS", "POSITION_RULES", "substring"]


def _located(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return the position of a part. Its first argument is the start, which Spark evaluates first."""
    made = [implicit(value, dtype) for value, dtype in zip(arguments, (TEXT, TEXT, INT), strict=False)]
    if not 2 <= len(arguments) <= 3 or None in made:
        raise misfit(function, arguments, f"{function}(STRING, STRING[, INT])")
    part, text, *start = (each for each in made if each is not None)
    return Call("locate", (*(start or [Constant(1, INT)]), part, text), INT)


def _overlaid(function: str, arguments: Sequence[Expression]) -> Expression:
    given = arguments if len(arguments) == 4 else [*arguments, Constant(-1, INT)]
    if any(each.type == BINARY for each in arguments):
        raise misfit(function, arguments, "text", "join parts of bytes with substr(…) || substr(…)")
    return Signature(TEXT, (TEXT, TEXT, INT, INT))(function, given)


POSITION_RULES: Mapping[str, Rule] = {
    "instr": Signature(INT, (TEXT, TEXT)),
    **dict.fromkeys(("locate", "position"), _located),
    "find_in_set": Signature(INT, (TEXT, TEXT)),
    "substring_index": Signature(TEXT, (TEXT, TEXT, INT)),
    "overlay": _overlaid,
}


def substring(build: Builder, text: pl.Expr, start: pl.Expr, length: pl.Expr | None = None) -> pl.Expr:
    """Return a part of text. A negative start counts from the end; positions outside the text are ignored."""
    text = build.share(text)
    first, count = slice_of(build, text.str.len_chars(), start, length)
    return pl.when(first.is_not_null() & count.is_not_null()).then(text.str.slice(first, count))


def slice_of(build: Builder, size: pl.Expr, start: pl.Expr, length: pl.Expr | None) -> tuple[pl.Expr, pl.Expr]:
    """Convert SQL's start and length to a start from 0 and a length."""
    size = size.cast(pl.Int64)
    place = build.share(start.cast(pl.Int64))
    first = build.share(pl.when(place > 0).then(place - 1).when(place < 0).then(size + place).otherwise(place))
    end = size if length is None else pl.min_horizontal(first + length.cast(pl.Int64), size)
    if length is not None:  # min_horizontal would ignore a null operand
        end = pl.when(length.is_not_null() & first.is_not_null()).then(end)
    offset = build.share(first.clip(lower_bound=0))
    return offset, build.share((end - offset).clip(lower_bound=0))


def _before(text: pl.Expr, part: pl.Expr) -> pl.Expr:
    return text.str.splitn(part, 2).struct.field("field_0")


def _instr(build: Builder, text: pl.Expr, part: pl.Expr) -> pl.Expr:
    part = build.share(part)
    text = build.share(pl.when(part.is_not_null()).then(text))  # as many rows as parts, of a constant too
    found = pl.when(part == "").then(pl.lit(1, dtype=pl.Int32))
    found = found.when(text.str.contains(part, literal=True)).then(
        _before(text, part).str.len_chars().cast(pl.Int32) + 1
    )
    return pl.when(text.is_not_null()).then(found.otherwise(pl.lit(0, dtype=pl.Int32)))


def _locate(build: Builder, start: pl.Expr, part: pl.Expr, text: pl.Expr) -> pl.Expr:
    start, part = build.share(start.cast(pl.Int64)), build.share(part)
    both = part.is_not_null() & start.is_not_null()
    rest = build.share(pl.when(both).then(text.str.slice((start - 1).clip(lower_bound=0))))
    place = (_before(rest, part).str.len_chars().cast(pl.Int64) + start).cast(pl.Int32)
    zero = pl.lit(0, dtype=pl.Int32)
    found = pl.when(start.is_null()).then(zero).when(rest.is_null()).then(None).when(start < 1).then(zero)
    found = found.when(part == "").then(pl.lit(1, dtype=pl.Int32))
    return found.when(rest.str.contains(part, literal=True)).then(place).otherwise(zero)


def _find_in_set(build: Builder, item: pl.Expr, listed: pl.Expr) -> pl.Expr:
    item = build.share(item)
    comma = pl.lit(",")
    part = build.share(pl.concat_str(comma, item, comma))
    text = build.share(pl.concat_str(comma, pl.when(item.is_not_null()).then(listed), comma))
    place = _before(text, part).str.count_matches(",", literal=True).cast(pl.Int32) + 1
    absent = item.str.contains(",", literal=True) | ~text.str.contains(part, literal=True)
    return pl.when(text.is_not_null()).then(pl.when(absent).then(pl.lit(0, dtype=pl.Int32)).otherwise(place))


def _substring_index(build: Builder, text: pl.Expr, _: pl.Expr, count: pl.Expr) -> pl.Expr:
    delimiter = build.constant(1, "the delimiter")
    if delimiter is None:
        return pl.when(pl.lit(value=False)).then(text)
    if any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter))):
        raise SchemaError(f"the delimiter {delimiter!r} may overlap itself", expected="one that does not")
    text, count = build.share(text), build.share(count.cast(pl.Int64))
    known = text.is_not_null() & count.is_not_null()
    if not delimiter:
        return pl.when(known).then(pl.lit(""))
    parts = build.share(text.str.split(delimiter))
    some = pl.when(count > 0).then(parts.list.head(count.clip(lower_bound=0)))
    some = some.otherwise(parts.list.tail((0 - count).clip(lower_bound=0)))
    return pl.when(known).then(some.list.join(delimiter))


def _overlay(build: Builder, text: pl.Expr, by: pl.Expr, place: pl.Expr, length: pl.Expr) -> pl.Expr:
    by, place, length = build.share(by), build.share(place.cast(pl.Int64)), build.share(length.cast(pl.Int64))
    size = pl.when(length >= 0).then(length).when(length < 0).then(by.str.len_chars().cast(pl.Int64))
    before = substring(build, text, pl.lit(1, dtype=pl.Int64), place - 1)
    return pl.concat_str(before, by, substring(build, text, place + size))


POSITIONS: Mapping[str, Kernel] = {
    "instr": _instr,
    "locate": _locate,
    "find_in_set": _find_in_set,
    "substring_index": _substring_index,
    "overlay": _overlay,
}
