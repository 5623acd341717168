"""Columns of Arrow tables by their path names, and rows kept under fewer columns than the job has now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import Tree, parts_of


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def column_at(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the column or field with this path name; null where a struct on the way to the field is null."""
    if rows.schema.get_field_index(name) >= 0:
        return rows.column(name)
    column, *fields = parts_of(name)
    return pc.struct_field(rows.column(column), fields)


def type_at(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of the column or field with this path name."""
    if schema.get_field_index(name) >= 0:
        return schema.field(name).type
    column, *fields = parts_of(name)
    dtype = schema.field(column).type
    for field in fields:
        dtype = dtype.field(field).type
    return dtype


def columns_at(rows: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
    """Return the columns or fields with these path names, in order."""
    return [column_at(rows, name) for name in names]


def null_rows(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which rows have a null value, or a null in any field of a struct."""
    nulls = np.zeros(len(column), dtype=np.bool_)
    if column.null_count:
        nulls |= np.asarray(column.is_null())
    if pa.types.is_struct(column.type):
        for field in column.flatten():
            nulls |= null_rows(field)
    return nulls


def tree_of(fields: pa.Schema | pa.StructType) -> Tree:
    """Return the names of a schema's columns, and of the fields of structs."""
    return {field.name: tree_of(field.type) if pa.types.is_struct(field.type) else None for field in fields}


def covers(schema: pa.Schema, kept: pa.Schema) -> bool:
    """Return whether a schema has each kept column with its type, so that kept rows only gain null columns."""
    return all(
        schema.get_field_index(field.name) >= 0 and schema.field(field.name).type == field.type for field in kept
    )


def with_nulls(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema, in its order; columns that they lack are null."""
    if table.schema.names == schema.names:
        return table
    has = set(table.schema.names)
    columns = [
        table.column(field.name) if field.name in has else pa.nulls(table.num_rows, field.type) for field in schema
    ]
    fields = [table.schema.field(field.name) if field.name in has else field.with_nullable(True) for field in schema]
    return pa.table(columns, schema=pa.schema(fields))
