"""Text columns: collations, which are refused, bytes that are not UTF-8, and texts of other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError
from .exact_integers import Mask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


Json = Any

_COLLATIONS = "__COLLATIONS"
_BINARY = "UTF8_BINARY"


def collations_of(fields: Iterable[Json]) -> dict[str, str]:
    """Return the collations of columns and of their fields, by name, from the JSON that Spark and Delta share."""
    found: dict[str, str] = {}
    for field in fields:
        for name, whole in field.get("metadata", {}).get(_COLLATIONS, {}).items():
            if (collation := str(whole).rpartition(".")[2]) != _BINARY:
                found[name] = collation
        for name, collation in _inside(field["type"]).items():
            found[f"{field['name']}.{name}"] = collation
    return found


def check_collations(schema: StructType, *, names: Iterable[str] | None = None) -> None:
    """Refuse columns with a collation: those in `names`, or by default all."""
    wanted = None if names is None else set(names)
    fields = schema.jsonValue()["fields"]
    found = collations_of(field for field in fields if wanted is None or field["name"] in wanted)
    if found:
        one = next(iter(found))
        raise SchemaError(
            "the text of "
            f"{', '.join(f'{name} is under the collation {collation}' for name, collation in found.items())}",
            expected=f"text under {_BINARY}, the default: here two texts are equal where their bytes are, so that 'A' "
            "and 'a' are two keys",
            hint=f"first give each column the collation {_BINARY}, for example .withColumn({one!r}, "
            f"F.expr(\"collate({one}, '{_BINARY}')\")). "
            f"If 'A' and 'a' are one key, use F.lower",
        )


def _inside(kind: Json) -> dict[str, str]:
    """Return the collations inside a struct, list or map; those of a list's own elements are found with the column."""
    if not isinstance(kind, dict):
        return {}
    found = collations_of(kind.get("fields", ()))
    for part in ("elementType", "keyType", "valueType"):
        found |= _inside(kind.get(part))
    return found


# Up to so many values are checked one by one.
_FEW = 64


def rows_without_text(rows: pa.Table) -> Mask:
    """Return which rows have text that is not UTF-8 in any column or field."""
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in rows.columns:
        if _holds_text(column.type):
            start = 0
            for chunk in column.chunks:
                found[start : start + len(chunk)] |= _invalid(chunk)
                start += len(chunk)
    return found


def readable(rows: pa.Table) -> pa.Table:
    """Return rows in whose text escapes stand for bytes that are not UTF-8."""
    if not rows_without_text(rows).any():
        return rows
    columns = [
        pa.array(map(_readable, column.cast(as_bytes(column.type)).to_pylist()), column.type)
        if _holds_text(column.type)
        else column
        for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _readable(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case dict():
            return {name: _readable(each) for name, each in value.items()}
        case list() | tuple():
            return type(value)(map(_readable, value))
        case _:
            return value


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with binary in place of text, at any depth."""
    return mapped_type(kind, lambda leaf: pa.binary() if pa.types.is_string(leaf) else leaf)


def mapped_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with a change to each type within that holds no others."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(mapped_type(field.type, change)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(mapped_type(kind.value_type, change)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(mapped_type(kind.key_type, change)),
            kind.item_field.with_type(mapped_type(kind.item_type, change)),
        )
    return change(kind)


def _holds_text(kind: pa.DataType) -> bool:
    return as_bytes(kind) != kind


def _invalid(array: pa.Array) -> Mask:
    kind = array.type
    found = np.zeros(len(array), dtype=np.bool_)
    if pa.types.is_string(kind):
        _look(array, found)
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            if _holds_text(child.type):
                found |= _invalid(child)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        for values, parents in values_inside(array):
            if _holds_text(values.type):
                found[parents[_invalid(values)]] = True
    return found


def values_inside(array: pa.Array) -> list[tuple[pa.Array, npt.NDArray[np.int64]]]:
    """Return the values in the rows of a list or map, with the row of each; a map's keys and items apart."""
    if pa.types.is_list(array.type):
        return [(pc.list_flatten(array), np.asarray(pc.list_parent_indices(array)))]
    offsets: npt.NDArray[np.int64] = np.asarray(array.offsets).astype(np.int64)
    parents = np.repeat(np.arange(len(array), dtype=np.int64), offsets[1:] - offsets[:-1])
    first = int(offsets[0])  # keys and values are those of the whole map, whichever rows of it these are
    return [(values.slice(first, len(parents)), parents) for values in (array.keys, array.items)]


def _look(array: pa.Array, found: Mask) -> None:
    """Mark text that is not UTF-8: check whole ranges, and divide those that fail."""
    left = [(0, len(array))]
    while left:
        start, end = left.pop()
        try:
            array.slice(start, end - start).validate(full=True)
        except pa.ArrowInvalid:
            if end - start <= _FEW:
                found[start:end] = [_is_no_text(value) for value in array.slice(start, end - start).cast(pa.binary())]
            else:
                middle = (start + end) // 2
                left += [(start, middle), (middle, end)]


def _is_no_text(value: pa.Scalar) -> bool:
    if not value.is_valid:
        return False
    try:
        value.as_py().decode()
    except UnicodeDecodeError:
        return True
    return False


def value_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column as text, the same for 0.0 and -0.0, and in UTC for times with a zone."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 and 0.0 are one key
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))  # in UTC
    return column.cast(pa.string())
