"""Unreadable fields of delimited lines, found all at once; Arrow's parser refuses them one by one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["refused"]

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_NUMBER = r"^[ \t]*[+-]?(?:[0-9.][0-9.eE+-]*|[nN][aA][nN].*|[iI][nN][fF].*)[ \t]*$"
_DAY = r"^[ \t]*[0-9]{4}-[0-9]{2}-[0-9]{2}"


def refused(fields: pa.ChunkedArray, dtype: pa.DataType) -> tuple[list[int], list[str]]:
    """Return the places of fields that are no values of a type, and these fields as text.

    Fields are null where they mean null. Arrow refuses every field found, and some others.
    """
    try:
        texts = fields.cast(pa.string())
    except pa.ArrowInvalid:
        return _no_text(fields)
    pattern = _pattern(dtype)
    if pattern is None:
        return [], []
    wrong = pc.fill_null(pc.invert(pc.match_substring_regex(texts, pattern)), False)
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        wrong = pc.or_(wrong, _no_day(texts))
    places = pc.indices_nonzero(wrong)
    return places.to_pylist(), texts.take(places).to_pylist()


def _pattern(dtype: pa.DataType) -> str | None:
    types = pa.types
    if types.is_integer(dtype):
        most = _DIGITS[dtype.bit_width]
        return rf"^[ \t]*[+-]?0*[0-9]{{1,{most}}}[ \t]*$"
    if types.is_floating(dtype) or types.is_decimal(dtype):
        return _NUMBER
    if types.is_boolean(dtype):
        return r"(?i)^[ \t]*(?:0|1|true|false)[ \t]*$"
    if types.is_date(dtype):
        return _DAY + r"[ \t]*$"
    if types.is_timestamp(dtype):
        return _DAY + r"(?:[zZ]|[T ](?:[01][0-9]|2[0-3]).*)?[ \t]*$"
    return None


def _no_day(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which texts do not begin with a day that exists: February 30th, for example, does not."""
    import polars as pl

    days = pl.Series(texts).str.strip_chars(" \t").str.slice(0, 10)
    wrong = days.is_not_null() & days.str.to_date("%Y-%m-%d", strict=False).is_null()
    return pa.chunked_array([wrong.to_arrow()])


def _no_text(fields: pa.ChunkedArray) -> tuple[list[int], list[str]]:
    found: list[tuple[int, str]] = []
    for place, field in enumerate(fields.to_pylist()):
        if field is None:
            continue
        try:
            field.decode()
        except UnicodeDecodeError:
            found.append((place, field.decode("utf-8", "replace")))
    return [place for place, _ in found], [text for _, text in found]
