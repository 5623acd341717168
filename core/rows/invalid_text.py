"""Bytes that are not UTF-8 in columns of text, which Spark does not reject."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["as_bytes", "rows_without_text"]

Mask = npt.NDArray[np.bool_]

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


def as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with binary in place of text, at any depth."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_bytes(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(as_bytes(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(as_bytes(kind.key_type)), kind.item_field.with_type(as_bytes(kind.item_type))
        )
    return kind


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
        for values, parents in _inside(array):
            if _holds_text(values.type):
                found[parents[_invalid(values)]] = True
    return found


def _inside(array: pa.Array) -> list[tuple[pa.Array, npt.NDArray[np.int64]]]:
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
