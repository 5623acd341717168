"""Update keys as text: the key of results that may lack a row of either side."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError

__all__ = ["NO_ROW", "check_key_texts", "key_texts", "value_texts"]

NO_ROW = "\\N"
"""The text of a missing row. No key has it, since a backslash in a key is doubled."""


def check_key_texts(schema: pa.Schema, key: Sequence[str], name: str) -> None:
    """Refuse an update key with binary or nested columns, of which :func:`key_texts` cannot make text."""
    for column in key:
        kind = schema.field(column).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise SchemaError(
                f"the key of the {name} stream has {column} of type {kind}, and results name both keys as text",
                expected="keys of text, numbers, dates, and times",
                hint="make text of the column where rows are read: read(…, select='hex(a) AS a, …')",
            )


def key_texts(rows: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Return the key of each row as text, equal only for equal keys; the key must have no nulls.

    Commas separate the values of several columns. Commas in the values get a backslash, and backslashes are doubled.
    """
    parts = [pc.replace_substring(value_texts(rows.column(name)), "\\", "\\\\") for name in key]
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*(pc.replace_substring(each, ",", "\\,") for each in parts), ",")


def value_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column as text, the same for 0.0 and -0.0, and in UTC for times with a zone."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 and 0.0 are one key
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))  # in UTC
    return column.cast(pa.string())
