"""The values that identify a row as one text: a key for tables without columns of a suitable type."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...operators.joins.key_texts import NO_ROW, value_texts

__all__ = ["row_keys"]

NULL = NO_ROW
"""The text of null. No value has it: a backslash in a value is doubled."""


def row_keys(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    r"""Return a text for each row, equal exactly for equal values of the columns; without columns, the empty text.

    Commas separate values; a backslash escapes commas and backslashes in them; null is ``\N``. A comma follows each
    element of an array and separates the fields of a struct; binary values are hexadecimal.
    """
    if not columns:
        return pa.array([""] * rows.num_rows, pa.string())
    return _joined([_texts(rows.column(name).combine_chunks()) for name in columns])


def _joined(values: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*(_escaped(each) for each in values), ",")


def _escaped(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, "\\", "\\\\")
    return pc.fill_null(pc.replace_substring(doubled, ",", "\\,"), NULL)


def _texts(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        fields = values.flatten()
        made = _joined([_texts(each) for each in fields]) if fields else pa.array([""] * len(values), pa.string())
        return pc.if_else(values.is_valid(), made, None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_texts(values)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        series = pl.from_arrow(values.cast(pa.large_binary()))
        assert isinstance(series, pl.Series)
        return series.bin.encode("hex").to_arrow().cast(pa.string())
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
    return value_texts(values).cast(pa.string())


def _list_texts(values: pa.Array) -> pa.Array:
    elements = pc.binary_join_element_wise(_escaped(_texts(pc.list_flatten(values))), "", ",")
    sizes = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    made = pc.binary_join(pa.LargeListArray.from_arrays(offsets, elements), "")
    return pc.if_else(values.is_valid(), made, None)
