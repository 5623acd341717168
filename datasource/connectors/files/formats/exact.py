"""Which inferred types of text fields lose what the text says: `00123` is not the number 123 where it names something."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["without_loss"]

_LEADING_ZERO = r"^[+-]?0[0-9]"
_WHOLE = r"^[+-]?[0-9]+$"


def without_loss(
    schema: pa.Schema, texts: Callable[[list[str]], pa.Table], keys: Collection[str], time: str | None
) -> pa.Schema:
    """The schema, with text in the place of types that would take different fields for one value.

    A key column is text unless each field of the sample is what its value is written as; so it is never a float. Any other column is text
    where a whole number begins with a zero, or where all are whole numbers and some have more digits than 64 bits hold.

    Parameters
    ----------
    schema : pyarrow.Schema
        As inferred.
    texts : callable
        The columns named, as they are written.
    keys : collection of str
        Columns of the update key, in lower case.
    time : str or None
        The column of the event time, of which the value counts.
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
