"""Types that lose nothing of text fields: `00123` is not the number 123 where it is a name."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["without_loss", "written_otherwise"]

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
