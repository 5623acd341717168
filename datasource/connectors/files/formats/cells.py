"""Fields of delimited lines: those that cannot be read, found all at once, and types that lose nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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


_LEADING_ZERO = r"^[+-]?0[0-9xX]"
_WHOLE = r"^[+-]?[0-9]+$"
_SPACE, _PLUS, _MINUS, _ZERO = b" +-0"


def without_loss(
    schema: pa.Schema, texts: Callable[[list[str]], pa.Table], keys: Collection[str], time: str | None
) -> pa.Schema:
    """Return the schema, with text in place of types that would read different fields as one value.

    A key column (`keys`, lower-case) is text unless each sampled field is written exactly as its value, so never a
    float. Any other is text if a whole number begins with a zero (`007`, `0x10`), or if all are whole numbers and some
    exceed 64 bits. Of the column `time`, only the value counts. `texts` returns columns as written.
    """
    doubted = [field.name for field in schema if field.name != time and _may_lose(field, keys)]
    if not doubted:
        return schema
    written = texts(doubted)
    for name in doubted:
        at = schema.get_field_index(name)
        if _loses(written.column(name), schema.field(at).type, key=name.lower() in keys):
            schema = schema.set(at, pa.field(name, pa.string()))
    return schema


def _may_lose(field: pa.Field, keys: Collection[str]) -> bool:
    types = pa.types
    if field.name.lower() in keys:
        return not (types.is_string(field.type) or types.is_null(field.type))
    return types.is_integer(field.type) or types.is_floating(field.type)


def _loses(texts: pa.ChunkedArray, dtype: pa.DataType, *, key: bool) -> bool:
    texts = texts.drop_null()
    if not key:
        if pa.types.is_integer(dtype):
            return _any(texts, _LEADING_ZERO)
        # Inferred as floats: some field has a point, or too many digits.
        whole = pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py()
        return bool(whole) and len(texts) > 0
    if pa.types.is_floating(dtype):
        return True
    try:
        return not texts.cast(dtype).cast(pa.string()).equals(texts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return True


def _any(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def written_otherwise(fields: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which fields, if numbers, are not written as their whole number: `00123`, `+1`, `-0`, ` 7`."""
    chunks = [_otherwise(chunk) for chunk in fields.chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.bool_)


def _otherwise(fields: pa.Array) -> npt.NDArray[np.bool_]:
    _, offsets, values = fields.buffers()
    if not len(fields) or offsets is None or values is None or not values.size:
        return np.zeros(len(fields), dtype=np.bool_)
    ends = np.frombuffer(offsets, np.int32)[fields.offset : fields.offset + len(fields) + 1]
    data = np.frombuffer(values, np.uint8)
    sizes = np.diff(ends)
    first = data[np.minimum(ends[:-1], len(data) - 1)]
    last = data[ends[1:] - 1]
    found = (first == _ZERO) & (sizes > 1) | (first == _PLUS) | (first <= _SPACE) | (last <= _SPACE)
    negative = np.flatnonzero((first == _MINUS) & (sizes > 1))
    found[negative] |= data[ends[negative] + 1] == _ZERO
    return found & (sizes > 0)
