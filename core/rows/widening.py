"""Rows kept under fewer columns than the job has now."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["covers", "with_nulls"]


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
