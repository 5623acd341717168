"""Encodings of bytes and characters as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from .coercion import Rule, Signature, cast, implicit, misfit
from .columnar import Builder, Kernel, on_series
from .kinds import BINARY, INT, LONG, NULL, TEXT, is_number
from .nodes import Call, Constant, Expression
from .text import slice_of

_UTF_8 = ("UTF-8", "UTF8")


def is_bytes(arguments: Sequence[Expression]) -> bool:
    """Return whether the first argument is bytes."""
    return bool(arguments) and arguments[0].type == BINARY


def on_bytes(rule: Rule, name: str, *more: pa.DataType, result: pa.DataType = BINARY) -> Rule:
    """Extend a rule of text to bytes, for which it is another function, of bytes and the arguments `more`."""

    def chosen(function: str, arguments: Sequence[Expression]) -> Expression:
        if not is_bytes(arguments):
            return rule(function, arguments)
        return Signature(result, (BINARY, *more), optional=len(more) - 1 if len(more) > 1 else 0, name=name)(
            function, arguments
        )

    return chosen


def _hex_rule(function: str, arguments: Sequence[Expression]) -> Expression:
    value = arguments[0] if len(arguments) == 1 else None
    if value is None or not (is_number(value.type) or value.type in (TEXT, BINARY, NULL)):
        raise misfit(function, arguments, "a number, text or bytes")
    return Call(function, (cast(value, LONG if is_number(value.type) or value.type == NULL else BINARY),), TEXT)


def _utf_8(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return ``encode`` or ``decode`` as a cast. Only UTF-8 is possible, the encoding of Arrow."""
    value, name = arguments if len(arguments) == 2 else (None, None)
    known = isinstance(name, Constant) and str(name.value).upper() in _UTF_8
    if value is None or not known:
        raise misfit(function, arguments, f"a value and the encoding 'UTF-8': {function}(x, 'UTF-8')")
    if function == "encode":
        made = implicit(value, TEXT)
        if made is not None:
            return cast(made, BINARY)
    elif value.type in (BINARY, TEXT, NULL):
        return cast(cast(value, BINARY), TEXT)
    raise misfit(function, arguments, "text" if function == "encode" else "bytes")


def _hex(build: Builder, value: pl.Expr) -> pl.Expr:
    if build.call.arguments[0].type == BINARY:
        value = build.share(value)
        return pl.when(build.fits(value.bin.size() * 2)).then(value).bin.encode("hex").str.to_uppercase()
    digits = build.share(on_series(_digits, value, dtype=pl.String).str.strip_chars_start("0"))
    return pl.when(digits == "").then(pl.lit("0")).otherwise(digits)


def _digits(numbers: pl.Series) -> pl.Series:
    """Return the 16 hexadecimal digits of 64-bit numbers."""
    raw = numbers.fill_null(0).to_numpy().astype(">i8").tobytes()
    array = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(raw)]).cast(pa.large_binary())
    made = pl.Series(pl.from_arrow(array)).bin.encode("hex").str.to_uppercase()
    return made.set(numbers.is_null(), None) if numbers.null_count() else made


def _bin(build: Builder, value: pl.Expr) -> pl.Expr:
    nibbles = {f"{each:X}": f"{each:04b}" for each in range(16)}
    digits = on_series(_digits, value, dtype=pl.String).str.replace_many(list(nibbles), list(nibbles.values()))
    digits = build.share(digits.str.strip_chars_start("0"))
    return pl.when(digits == "").then(pl.lit("0")).otherwise(digits)


def _unhex(_: Builder, text: pl.Expr) -> pl.Expr:
    usable = pl.when(text.str.contains(r"^[0-9a-fA-F]*\z")).then(text)
    even = pl.when(usable.str.len_bytes() % 2 == 1).then(pl.concat_str(pl.lit("0"), usable)).otherwise(usable)
    return even.str.decode("hex", strict=False)


def _unbase64(build: Builder, text: pl.Expr) -> pl.Expr:
    text = build.share(text)
    strict = text.str.contains(r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\z")
    reason = "the text is not padded base 64, of which Spark and this evaluation may take different bytes"
    build.fail(~strict, reason, "write it without blanks, and with = at the end", lasting=True)
    return pl.when(strict).then(text).str.decode("base64", strict=False)


def _ascii(_: Builder, text: pl.Expr) -> pl.Expr:
    def run(series: pl.Series) -> pl.Series:
        first = pl.select(pl.when(series.str.len_bytes() > 0).then(series.str.slice(0, 1)).otherwise(pl.lit("\0")))
        together = first.to_series().str.join("").item() if len(series) else ""
        points = np.frombuffer(together.encode("utf-32-le"), np.uint32).astype(np.int32)
        return pl.Series(points, dtype=pl.Int32).set(series.is_null(), None)

    return on_series(run, text, dtype=pl.Int32)


def _chr(build: Builder, code: pl.Expr) -> pl.Expr:
    code = build.share(code)
    table = pl.Series([chr(each) for each in range(256)])
    letter = on_series(lambda series: table.gather(series % 256), code.clip(lower_bound=0), dtype=pl.String)
    return pl.when(code < 0).then(pl.lit("")).otherwise(letter)


def _cut(build: Builder, value: pl.Expr, start: pl.Expr, length: pl.Expr | None = None) -> pl.Expr:
    """Return a slice of bytes, cut in their hexadecimal digits, two for each byte."""
    value = build.share(value)
    first, count = slice_of(build, value.bin.size(), start, length)
    part = value.bin.encode("hex").str.slice(first * 2, count * 2).str.decode("hex")
    return pl.when(value.is_not_null() & first.is_not_null() & count.is_not_null()).then(part)


def _joined(build: Builder, *values: pl.Expr) -> pl.Expr:
    first, *rest = (build.share(each) for each in values)
    size = sum((each.bin.size().cast(pl.Int64) for each in rest), first.bin.size().cast(pl.Int64))
    some = [pl.when(build.fits(size)).then(first), *rest]
    return pl.concat_str([each.bin.encode("hex") for each in some]).str.decode("hex")


def _base64(build: Builder, value: pl.Expr) -> pl.Expr:
    value = build.share(value)
    return pl.when(build.fits((value.bin.size() + 2) // 3 * 4)).then(value).bin.encode("base64")


def _left(build: Builder, value: pl.Expr, length: pl.Expr) -> pl.Expr:
    return _cut(build, value, pl.lit(1, dtype=pl.Int64), length)


ENCODING_RULES: Mapping[str, Rule] = {
    "hex": _hex_rule,
    "unhex": Signature(BINARY, (TEXT,)),
    "base64": Signature(TEXT, (BINARY,)),
    "unbase64": Signature(BINARY, (TEXT,)),
    "bin": Signature(TEXT, (LONG,)),
    "ascii": Signature(INT, (TEXT,)),
    **dict.fromkeys(("chr", "char"), Signature(TEXT, (LONG,), name="chr")),
    **dict.fromkeys(("encode", "decode"), _utf_8),
}

ENCODINGS: Mapping[str, Kernel] = {
    "hex": _hex,
    "unhex": _unhex,
    "base64": _base64,
    "unbase64": _unbase64,
    "bin": _bin,
    "ascii": _ascii,
    "chr": _chr,
    "bytes_length": lambda _, value: value.bin.size().cast(pl.Int32),
    "bytes_substring": _cut,
    "bytes_left": _left,
    "bytes_concat": _joined,
}
