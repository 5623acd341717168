"""Casts between numbers, booleans, text and times, as in Spark's ANSI mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from .columnar import Builder, Kernel, flat_bytes, on_series, polars_type, quotient
from .decimals import as_decimals, divided_half_up, in_java_digits, int128, negative, scaled, unscaled
from .kinds import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LOCAL_TIMESTAMP,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    is_decimal,
    is_integral,
    is_number,
    spark_name,
    standard,
)
from .notation import (
    date_of_text,
    decimal_of_text,
    double_of_text,
    text_of_date,
    text_of_double,
    text_of_timestamp,
    timestamp_of_text,
    trimmed,
)


def decoded(values: pl.Series) -> pl.Series:
    r"""Return bytes as text; null where they are not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        broken = _broken(values)
        # Bytes below a null would be decoded too.
        kept = values.fill_null(b"").zip_with(~broken, pl.Series([b""]))
        return kept.cast(pl.String).set(broken | values.is_null(), None)


def _broken(values: pl.Series) -> pl.Series:
    """Return a mask of values that are not UTF-8. One call of Python decodes all, and marks invalid bytes."""
    # A line's end after each value keeps characters from spanning two values.
    line_end, nothing = (pa.scalar(each, pa.large_binary()) for each in (b"\n", b""))
    given: Any = values.fill_null(b"").to_arrow().cast(pa.large_binary())
    joined: Any = pc.binary_join_element_wise  # pyright: ignore[reportAttributeAccessIssue] made at run time
    ended = joined(given, line_end, nothing)
    flat, ends = flat_bytes(pl.Series(pl.from_arrow(ended)))
    text = flat[ends[0] : ends[-1]].tobytes().decode("utf-8", "surrogateescape")
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    marked = (points >= 0xDC80) & (points <= 0xDCFF)
    sizes = np.where(marked | (points < 0x80), 1, np.where(points < 0x800, 2, np.where(points < 0x10000, 3, 4)))
    places = np.cumsum(sizes) - sizes
    broken = np.zeros(len(values), dtype=bool)
    broken[np.searchsorted(ends[1:] - ends[0], places[marked], side="right")] = True
    return pl.Series(broken)


_SECOND = 1_000_000
_LONG_DIGITS = 18
"""Spark keeps decimals of up to this many digits in 64 bits."""
_TRY = "use try_cast, which gives null, or leave such rows out"
_EARLIEST, _LATEST = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND - 1
_YEARS = "the time is outside the years 1 to 9999"


def _cast(build: Builder, value: pl.Expr) -> pl.Expr:
    given, wanted = build.call.arguments[0].type, build.type
    if given == NULL:
        return pl.lit(None, dtype=polars_type(wanted))
    converter = _converter(given, wanted)
    if converter is None:
        return value.cast(polars_type(wanted))
    made = converter(build, value)
    if wanted in (TEXT, BINARY):
        return made
    if is_decimal(wanted) and given in (FLOAT, DOUBLE):  # Spark gives null for NaN and infinity
        made = build.share(made)
        build.fail(made.is_null() & value.is_finite(), f"it cannot be cast to {spark_name(wanted)}", _TRY)
        return made
    return build.strict(made, f"it cannot be cast to {spark_name(wanted)}", _TRY)


def _converter(given: pa.DataType, wanted: pa.DataType) -> Kernel | None:
    """Return the kernel of a cast that can fail or differs from Polars; None for a plain cast."""
    if given != wanted and standard(given) == wanted:
        return None
    if wanted == TEXT:
        return _to_text(given)
    if given == TEXT:
        return _from_text(wanted)
    if given in (TIMESTAMP, LOCAL_TIMESTAMP, DATE) or wanted in (TIMESTAMP, LOCAL_TIMESTAMP, DATE):
        return _with_time(given, wanted)
    if wanted == BOOLEAN:
        return lambda _, value: value != 0
    if is_decimal(given):
        return _from_decimal(wanted)
    if is_decimal(wanted):
        return _to_decimal(given)
    if is_integral(wanted) and given in (FLOAT, DOUBLE):
        return _whole_of_double
    if is_integral(given) and (not is_integral(wanted) or given.bit_width <= wanted.bit_width):
        return None
    if is_number(given) and is_number(wanted):
        return lambda build, value: value.cast(polars_type(build.type), strict=False)
    return None


def _whole_of_double(build: Builder, value: pl.Expr) -> pl.Expr:
    dtype = polars_type(build.type)
    made = value.cast(dtype, strict=False)
    if build.type != LONG:
        return made
    most = pl.lit(np.iinfo(np.int64).max, dtype=pl.Int64)  # Java casts 2 ** 63, the next double, to this
    return pl.when(build.share(value) == 2.0**63).then(most).otherwise(made)


def _to_text(given: pa.DataType) -> Kernel:
    if given == BOOLEAN or is_integral(given):
        return lambda _, value: value.cast(pl.String)
    if is_decimal(given):
        return lambda _, value: value.cast(pl.String)
    if given == BINARY:
        return _text_of_bytes
    if given in (FLOAT, DOUBLE):
        return lambda _, value: on_series(text_of_double, value, dtype=pl.String)
    return lambda build, value: text_of_date(build, value) if given == DATE else text_of_timestamp(build, value)


def _text_of_bytes(build: Builder, value: pl.Expr) -> pl.Expr:
    """Return bytes as text; fail if they are not UTF-8, which Spark keeps in a STRING and Arrow cannot."""
    value = build.share(value)
    made = build.share(on_series(decoded, value, dtype=pl.String))
    build.fail(
        made.is_null() & value.is_not_null(),
        "the bytes are not UTF-8, which text is made of here",
        "use hex(…) or base64(…), or leave such rows out",
        lasting=True,
    )
    return made


def _from_text(wanted: pa.DataType) -> Kernel:
    if is_integral(wanted):
        return _whole_of_text
    if wanted in (FLOAT, DOUBLE):
        return lambda build, value: double_of_text(value, polars_type(build.type))
    if wanted == BOOLEAN:
        return _boolean_of_text
    if is_decimal(wanted):
        return lambda build, value: decimal_of_text(build, value, wanted)
    if wanted == DATE:
        return date_of_text
    if wanted == BINARY:
        return lambda _, value: value.cast(pl.Binary)
    return timestamp_of_text


def _whole_of_text(build: Builder, value: pl.Expr) -> pl.Expr:
    text = trimmed(value)
    digits = pl.when(text.str.contains(r"^[+-]?[0-9]+$")).then(text.str.strip_prefix("+"))
    return digits.cast(polars_type(build.type), strict=False)


def _boolean_of_text(_: Builder, value: pl.Expr) -> pl.Expr:
    words = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)
    return trimmed(value).str.to_lowercase().replace_strict(words, default=None, return_dtype=pl.Boolean)


def _from_decimal(wanted: pa.DataType) -> Kernel:
    def kernel(build: Builder, value: pl.Expr) -> pl.Expr:
        given: pa.Decimal128Type = build.call.arguments[0].type
        if wanted in (FLOAT, DOUBLE):
            return value.cast(pl.String).cast(polars_type(wanted))  # the nearest one
        numbers = build.share(unscaled(value))
        if is_decimal(wanted):
            return _rescaled(build, numbers, given.scale)
        if given.precision > _LONG_DIGITS and wanted != LONG:  # like Spark, which loses digits here
            return value.cast(pl.String).cast(pl.Float64).cast(polars_type(wanted), strict=False)
        size = negative(numbers.abs() // int128(10**given.scale), numbers < 0)
        return size.cast(polars_type(wanted), strict=False)

    return kernel


def _rescaled(build: Builder, numbers: pl.Expr, scale: int) -> pl.Expr:
    """Return unscaled numbers of a scale as decimals of the wanted type."""
    wanted: pa.Decimal128Type = build.type
    shift = wanted.scale - scale
    moved = divided_half_up(numbers, -shift) if shift < 0 else scaled(numbers, shift)
    return as_decimals(build.share(moved), wanted)


def _to_decimal(given: pa.DataType) -> Kernel:
    def kernel(build: Builder, value: pl.Expr) -> pl.Expr:
        if given in (FLOAT, DOUBLE):
            text = on_series(text_of_double, value.cast(pl.Float64), dtype=pl.String)
            return decimal_of_text(build, text, build.type)
        return _rescaled(build, build.share(value.cast(pl.Int128)), 0)

    return kernel


def _with_time(given: pa.DataType, wanted: pa.DataType) -> Kernel:
    if given == DATE or wanted in (DATE, LOCAL_TIMESTAMP):
        return _among_times
    if wanted == TIMESTAMP:
        return _among_times if given == LOCAL_TIMESTAMP else _timestamp_of_number
    return _number_of_timestamp


def _among_times(build: Builder, value: pl.Expr) -> pl.Expr:
    given, wanted = build.call.arguments[0].type, build.type
    counted = value.to_physical()
    if wanted == DATE:
        return (counted // (86_400 * _SECOND)).cast(pl.Int32).cast(pl.Date)
    if given == DATE:
        counted = counted.cast(pl.Int64) * (86_400 * _SECOND)
        within(build, counted)
    return counted.cast(polars_type(wanted))


def within(build: Builder, micros: pl.Expr) -> None:
    """Fail for times outside the years 1 to 9999, which Python and the tables cannot hold."""
    build.fail((micros < _EARLIEST) | (micros > _LATEST), _YEARS, "leave such rows out", lasting=True)


def _timestamp_of_number(build: Builder, value: pl.Expr) -> pl.Expr:
    given = build.call.arguments[0].type
    if given == BOOLEAN:
        value = value.cast(pl.Int64)
    if is_decimal(given):
        unit = int128(10 ** abs(given.scale - 6))
        numbers = build.share(in_java_digits(unscaled(value), given.precision))
        size = numbers.abs() * unit if given.scale <= 6 else numbers.abs() // unit
        micros = negative(size, numbers < 0).cast(pl.Int64, strict=False)
    elif given in (FLOAT, DOUBLE):
        micros = (value.cast(pl.Float64) * 1e6).cast(pl.Int64, strict=False)
    else:
        micros = (value.cast(pl.Int128) * int128(_SECOND)).cast(pl.Int64, strict=False)
    micros = build.share(micros)
    within(build, micros)
    if given not in (FLOAT, DOUBLE):
        build.fail(micros.is_null() & value.is_not_null(), _YEARS, "leave such rows out", lasting=True)
    return micros.cast(pl.Datetime("us", "UTC"))


def _number_of_timestamp(build: Builder, value: pl.Expr) -> pl.Expr:
    wanted, micros = build.type, value.to_physical()
    if wanted in (FLOAT, DOUBLE):
        return quotient(micros.cast(pl.Float64), pl.lit(1e6)).cast(polars_type(wanted))
    if is_decimal(wanted):
        return _rescaled(build, build.share(micros.cast(pl.Int128)), 6)
    return (micros // _SECOND).cast(polars_type(wanted), strict=False)


CASTS: Mapping[str, Kernel] = {"cast": _cast}
