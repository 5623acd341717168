"""Functions of text. Spark counts characters as Unicode code points, from 1."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow.compute as pc

from ..conf.errors import SchemaError
from .coercion import Rule, Signature, implicit, misfit
from .columnar import MOST_BYTES, Builder, Kernel, on_series
from .kinds import BINARY, INT, TEXT
from .nodes import Call, Constant, Expression


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


def _bytes(text: pl.Expr) -> pl.Expr:
    return text.str.len_bytes().cast(pl.Int64)


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
    text, by = build.share(text), build.share(by)
    place, length = build.share(place.cast(pl.Int64)), build.share(length.cast(pl.Int64))
    size = pl.when(length >= 0).then(length).when(length < 0).then(by.str.len_chars().cast(pl.Int64))
    before = substring(build, text, pl.lit(1, dtype=pl.Int64), place - 1)
    fits = build.fits(_bytes(text) + _bytes(by))
    return pl.concat_str(before, pl.when(fits).then(by), substring(build, text, place + size))


POSITIONS: Mapping[str, Kernel] = {
    "instr": _instr,
    "locate": _locate,
    "find_in_set": _find_in_set,
    "substring_index": _substring_index,
    "overlay": _overlay,
}


def _concat(build: Builder, *texts: pl.Expr) -> pl.Expr:
    first, *rest = (build.share(each) for each in texts)
    size = sum((_bytes(each) for each in rest), _bytes(first))
    return pl.concat_str(pl.when(build.fits(size)).then(first), *rest)


def _left(build: Builder, text: pl.Expr, length: pl.Expr) -> pl.Expr:
    length = build.share(length.cast(pl.Int64))
    return pl.when(length.is_not_null()).then(text.str.slice(0, length.clip(lower_bound=0)))


def _right(build: Builder, text: pl.Expr, length: pl.Expr) -> pl.Expr:
    text, length = build.share(text), build.share(length.cast(pl.Int64).clip(lower_bound=0))
    size = text.str.len_chars().cast(pl.Int64)
    return pl.when(length.is_not_null()).then(text.str.slice((size - length).clip(lower_bound=0)))


def _stripped(method: Callable[[pl.Expr, str], pl.Expr]) -> Kernel:
    def kernel(build: Builder, text: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
        characters = build.constant(1, "the characters to remove") if len(build.call.arguments) > 1 else " "
        if characters is None:
            return pl.when(pl.lit(value=False)).then(text)
        return method(text, characters) if characters else text

    return kernel


def _replace(build: Builder, text: pl.Expr, _: pl.Expr, by: pl.Expr | None = None) -> pl.Expr:
    search = build.constant(1, "the text to search for")
    if search is None:
        return pl.when(pl.lit(value=False)).then(text)
    replacement = "" if by is None else build.constant(2, "the replacement")
    if replacement is None:
        return pl.when(pl.lit(value=False)).then(text)
    if len(replacement) > len(search) > 0:
        text = build.share(text)
        found = text.str.count_matches(search, literal=True).cast(pl.Int64)
        size = _bytes(text) + found * (len(replacement.encode()) - len(search.encode()))
        text = pl.when(build.fits(size)).then(text)
    return text.str.replace_all(search, replacement, literal=True) if search else text


def _split_part(build: Builder, text: pl.Expr, _: pl.Expr, number: pl.Expr) -> pl.Expr:
    delimiter = build.constant(1, "the delimiter")
    if delimiter is None:
        return pl.when(pl.lit(value=False)).then(text)
    text, number = build.share(text), build.share(number.cast(pl.Int64))
    build.fail((number == 0) & text.is_not_null(), "part 0 is asked for", "count parts from 1, or from -1 at the end")
    if not delimiter:
        return pl.when(number.abs() == 1).then(text).when(text.is_not_null() & (number != 0)).then(pl.lit(""))
    index = pl.when(number > 0).then(number - 1).otherwise(number)
    part = text.str.split(delimiter).list.get(index, null_on_oob=True).fill_null("")
    return pl.when(text.is_not_null() & (number != 0)).then(part)


def _padded(left: bool) -> Kernel:
    def kernel(build: Builder, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
        length = build.constant(1, "the length")
        pad = build.constant(2, "the padding") if len(build.call.arguments) > 2 else " "
        if length is None or pad is None:
            return pl.when(pl.lit(value=False)).then(text)
        if length > MOST_BYTES:
            raise SchemaError(f"{build.call} pads to {length} characters", expected=f"at most {MOST_BYTES}")
        length = max(length, 0)
        text = build.share(text)
        filler = pl.lit((pad * (length // len(pad) + 1))[:length] if pad else "")
        missing = (length - text.str.len_chars().cast(pl.Int64)).clip(lower_bound=0)
        fits = build.fits(_bytes(text).clip(upper_bound=4 * length) + missing * len(max(pad or " ").encode()))
        text = pl.when(fits).then(text)
        fill, cut = filler.str.slice(0, missing), text.str.slice(0, length)
        return pl.when(text.is_not_null()).then(pl.concat_str(fill, cut) if left else pl.concat_str(cut, fill))

    return kernel


def _repeat(build: Builder, text: pl.Expr, times: pl.Expr) -> pl.Expr:
    text, times = build.share(text), build.share(times.cast(pl.Int64).clip(lower_bound=0))
    times = pl.when(build.fits(_bytes(text) * times)).then(times)
    return on_series(_repeated, text, times, dtype=pl.String)


def _repeated(texts: pl.Series, times: pl.Series) -> pl.Series:
    """Return repeated texts; a list of so many texts takes a microsecond for each."""
    found = pl.from_arrow(pc.binary_repeat(texts.to_arrow(), times.to_arrow()))  # type: ignore[attr-defined]
    assert isinstance(found, pl.Series)
    return found


def _concat_ws(build: Builder, _: pl.Expr, *texts: pl.Expr) -> pl.Expr:
    separator = build.constant(0, "the separator")
    if separator is None:
        return pl.lit(None, dtype=pl.String)
    texts = tuple(build.share(each) for each in texts)
    size = sum((_bytes(each).fill_null(0) + len(separator.encode()) for each in texts), pl.lit(0, dtype=pl.Int64))
    fits = build.fits(size)
    some = [pl.when(fits).then(each) for each in texts]
    return pl.when(fits).then(pl.concat_str(some, separator=separator, ignore_nulls=True))


def _reverse(build: Builder, value: pl.Expr) -> pl.Expr:
    if build.type != TEXT:
        return value.list.reverse()
    return value.str.split("").list.reverse().list.join("")  # by code points; str.reverse keeps graphemes


@functools.cache
def _titles() -> dict[str, str]:
    """Return title-case letters that differ from the upper-case letter, such as digraphs."""
    letters = map(chr, range(sys.maxunicode))
    return {letter: title for letter in letters if (title := letter.title()) != letter.upper()}


def _initcap(_: Builder, text: pl.Expr) -> pl.Expr:
    word = pl.element()
    first = word.str.slice(0, 1)
    rest = word.str.to_lowercase().str.slice(first.str.to_lowercase().str.len_chars())
    titles = _titles()
    title = pl.when(first.is_in(list(titles))).then(first.replace(titles)).otherwise(first.str.to_uppercase())
    return text.str.split(" ").list.eval(pl.concat_str(title, rest)).list.join(" ")


def _translate(build: Builder, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    letters, by = build.constant(1, "the letters to replace"), build.constant(2, "the letters to put in their place")
    if letters is None or by is None:
        return pl.when(pl.lit(value=False)).then(text)
    pairs: dict[str, str] = {}
    for at, letter in enumerate(letters):
        pairs.setdefault(letter, by[at : at + 1])
    return text.str.replace_many(list(pairs), list(pairs.values())) if pairs else text


def _searched(method: Callable[[pl.Expr, pl.Expr], Any]) -> Kernel:
    return lambda _, text, part: method(text, part)


TEXTS: Mapping[str, Kernel] = {
    "concat": _concat,
    "concat_ws": _concat_ws,
    "substring": substring,
    "left": _left,
    "right": _right,
    "length": lambda _, text: text.str.len_chars().cast(pl.Int32),
    "octet_length": lambda _, text: text.str.len_bytes().cast(pl.Int32),
    "upper": lambda _, text: text.str.to_uppercase(),
    "lower": lambda _, text: text.str.to_lowercase(),
    "trim": _stripped(lambda text, characters: text.str.strip_chars(characters)),
    "ltrim": _stripped(lambda text, characters: text.str.strip_chars_start(characters)),
    "rtrim": _stripped(lambda text, characters: text.str.strip_chars_end(characters)),
    "replace": _replace,
    "split_part": _split_part,
    "lpad": _padded(left=True),
    "rpad": _padded(left=False),
    "repeat": _repeat,
    "bit_length": lambda _, text: text.str.len_bytes().cast(pl.Int32) * 8,
    "contains": _searched(lambda text, part: text.str.contains(part, literal=True)),
    "startswith": _searched(lambda text, part: text.str.starts_with(part)),
    "endswith": _searched(lambda text, part: text.str.ends_with(part)),
    "reverse": _reverse,
    "initcap": _initcap,
    "translate": _translate,
}
