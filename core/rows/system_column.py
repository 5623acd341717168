"""The system column `_upstream` that every row carries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .exact_integers import Int64s, Mask

SYSTEM = "_upstream"
DELETED = f"{SYSTEM}_deleted"
"""The member of a dead letter's payload that marks a row that deletes its key."""
TIMESTAMP = pa.timestamp("us", tz="UTC")
SYSTEM_TYPE = pa.struct(
    [
        pa.field("punctuation", pa.bool_()),
        pa.field("source", pa.string()),  # the feed, which has its own low-watermark
        pa.field("seq", pa.int64()),  # the order of arrival in the feed: increasing, not contiguous
        pa.field("arrival", TIMESTAMP),  # when the system could first see the row
        pa.field("first_arrival", TIMESTAMP),  # of the oldest pending update that the row represents
        pa.field("covered", pa.int64()),  # how many updates the row represents
        pa.field("deleted", pa.bool_()),  # a tombstone: from its time on the key has no row, until a later one comes
    ]
)
SYSTEM_DDL = (
    f"`{SYSTEM}` STRUCT<punctuation: BOOLEAN, source: STRING, seq: BIGINT, "
    "arrival: TIMESTAMP, first_arrival: TIMESTAMP, covered: BIGINT, deleted: BOOLEAN>"
)


def with_system_ddl(ddl: str) -> str:
    """Return a schema in Spark's DDL with the system column at its end, for ``readStream.schema(…)``.

    Parameters
    ----------
    ddl
        The other columns.

    Returns
    -------
    str

    Examples
    --------
    >>> us.with_system_ddl("vehicle_id BIGINT, speed DOUBLE").count("_upstream")
    1
    """
    return f"{ddl}, {SYSTEM_DDL}"


def system_array(
    *,
    source: str,
    seq: Int64s,
    arrival_us: Int64s,
    first_arrival_us: Int64s | None = None,
    covered: Int64s | None = None,
    punctuation: bool = False,
    deleted: Mask | None = None,
) -> pa.StructArray:
    """Return the system column for rows of one feed.

    Times are in microseconds. `first_arrival_us` defaults to `arrival_us`, `covered` to 1, and `deleted` to no row.
    """
    n = len(seq)
    first = arrival_us if first_arrival_us is None else first_arrival_us
    count = np.ones(n, dtype=np.int64) if covered is None else covered
    columns: Sequence[pa.Array] = [
        pa.repeat(pa.scalar(punctuation), n),
        pa.repeat(pa.scalar(source), n),
        pa.array(seq, pa.int64()),
        pa.array(arrival_us, pa.int64()).view(TIMESTAMP),
        pa.array(first, pa.int64()).view(TIMESTAMP),
        pa.array(count, pa.int64()),
        pa.repeat(pa.scalar(False), n) if deleted is None else pa.array(deleted, pa.bool_()),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(SYSTEM_TYPE))


def system_field(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray | pa.Array:
    """Return a field of the system column."""
    import pyarrow.compute as pc

    return pc.struct_field(table.column(SYSTEM), [name])


def punctuation_mask(table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    """Return which rows are punctuation; null in the field means no."""
    import pyarrow.compute as pc

    return pc.fill_null(system_field(table, "punctuation"), False)


def passing_mask(table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    """Return which rows skip every filter and function on rows: punctuation and tombstones."""
    import pyarrow.compute as pc

    return pc.or_(punctuation_mask(table), deleted_mask(table))


def deleted_mask(table: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    """Return which rows are tombstones; null in the field means no."""
    import pyarrow.compute as pc

    return pc.fill_null(system_field(table, "deleted"), False)


def standing_for(rows: pa.Table, first_arrival_us: Int64s, covered: Int64s) -> pa.Table:
    """Return the rows with new first arrivals and new counts of the updates that they represent."""
    return with_system_fields(rows, first_arrival=pa.array(first_arrival_us).view(TIMESTAMP), covered=pa.array(covered))


def with_system_fields(rows: pa.Table, **fields: pa.Array) -> pa.Table:
    """Return the rows with some fields of their system column replaced."""
    place = rows.schema.get_field_index(SYSTEM)
    kind = rows.schema.field(SYSTEM).type
    parts = {field.name: fields.get(field.name) for field in kind}
    arrays = [
        system_field(rows, name).combine_chunks() if array is None else array.cast(kind.field(name).type)
        for name, array in parts.items()
    ]
    system = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return rows.set_column(place, rows.schema.field(SYSTEM), pa.chunked_array([system], kind))
