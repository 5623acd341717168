"""The rows of a join by time on their way to its shards, with a reduced system column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.ipc_frames import from_frame
from ...core.rows.split import split_punctuation
from ...core.rows.system_column import SYSTEM, TIMESTAMP, system_field
from ..runtime.arrivals import by_arrival, micros
from .arriving import checked_rows

__all__ = ["as_sent", "received", "received_schema"]

_ARRIVAL = pa.struct([pa.field("arrival", TIMESTAMP)])
_SAID = pa.struct([pa.field("source", pa.string()), pa.field("arrival", TIMESTAMP)])
_SENT = ("punctuation", "source", "seq", "arrival")


def as_sent(table: pa.Table, name: str | None = None) -> pa.Table:
    """Return a task's rows and punctuation as they go to the shards; refuse tombstones and coalesced rows.

    The name of an input partition is often longer than the rest of a row. A join needs it to order rows of one arrival,
    and for punctuation, so it travels as a number. The input's `name` precedes it, so that two inputs never share one.
    """
    checked_rows(split_punctuation(table)[0])
    source = pc.fill_null(system_field(table, "source"), "").combine_chunks().dictionary_encode()
    names = source.dictionary if name is None else pc.binary_join_element_wise(name, source.dictionary, "/")
    parts = {each: system_field(table, each).combine_chunks() for each in _SENT if each != "source"}
    parts["source"] = pa.DictionaryArray.from_arrays(source.indices, names)
    return _with_system(table, pa.StructArray.from_arrays([parts[each] for each in _SENT], names=list(_SENT)))


def received(frames: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Return the rows of some frames by arrival, and their punctuation.

    Of the system column, rows have only the arrival, and punctuation the source and the arrival. Frames are those of
    :func:`as_sent`, or have the whole system column.
    """
    parts = [split_punctuation(_sent(from_frame(frame).select(schema.names))) for frame in frames]
    # In the order of their first rows, so that most often no row has to be moved.
    rows = sorted((rows for rows, _ in parts if rows.num_rows), key=_first_arrival)
    found = [_reduced(by_arrival(pa.concat_tables(rows)), _ARRIVAL, schema)] if rows else []
    said = [_reduced(punctuation, _SAID, schema) for _, punctuation in parts if punctuation.num_rows]
    return (
        pa.concat_tables([received_schema(schema).empty_table(), *found]),
        pa.concat_tables([_schema(schema, _SAID).empty_table(), *said]),
    )


def received_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows that :func:`received` returns."""
    return _schema(schema, _ARRIVAL)


def _sent(table: pa.Table) -> pa.Table:
    return as_sent(table) if table.schema.field(SYSTEM).type.num_fields > len(_SENT) else table


def _first_arrival(rows: pa.Table) -> tuple[int, int]:
    first = rows.slice(0, 1)
    return int(micros(first, "arrival")[0]), system_field(first, "seq")[0].as_py() or 0


def _reduced(table: pa.Table, system: pa.StructType, schema: pa.Schema) -> pa.Table:
    parts = [system_field(table, field.name).cast(field.type).combine_chunks() for field in system]
    return _with_system(table, pa.StructArray.from_arrays(parts, fields=list(system))).cast(_schema(schema, system))


def _schema(schema: pa.Schema, system: pa.StructType) -> pa.Schema:
    return pa.schema([field if field.name != SYSTEM else pa.field(SYSTEM, system) for field in schema])


def _with_system(table: pa.Table, system: pa.StructArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(SYSTEM), SYSTEM, system)
