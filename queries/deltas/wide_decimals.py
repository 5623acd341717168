"""Decimals too wide for Polars, such as sums: frames and the state hold their Arrow bytes."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["as_bytes", "from_bytes", "stored_schema"]

_BYTES = 32


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with bytes in place of decimals of more than 38 digits."""
    return pa.schema([field.with_type(pa.binary()) if _is_wide(field) else field for field in schema])


def as_bytes(table: pa.Table) -> pa.Table:
    """Replace decimals of more than 38 digits by their bytes."""
    for at, field in enumerate(table.schema):
        if _is_wide(field):
            table = table.set_column(at, field.with_type(pa.binary()), _viewed(table.column(at), pa.binary(_BYTES)))
    return table


def from_bytes(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Invert :func:`as_bytes`."""
    for at, field in enumerate(schema):
        if _is_wide(field):
            table = table.set_column(at, field, _viewed(table.column(at).cast(pa.binary(_BYTES)), field.type))
    return table


def _is_wide(field: pa.Field) -> bool:
    return pa.types.is_decimal256(field.type)


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Reinterpret a column's values as another type of the same width; fixed-size bytes become variable ones."""
    chunks = [pa.Array.from_buffers(kind, len(each), each.buffers(), offset=each.offset) for each in column.chunks]
    viewed = pa.chunked_array(chunks, kind)
    return viewed.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind) else viewed
