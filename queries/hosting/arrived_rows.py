"""Rows of a stream between the scan and the first stage, with the needed system values as columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.system_column import deleted_mask, system_field
from ...operators.runtime.arrivals import micros
from ..deltas.streams import SEQUENCE, TOMBSTONE

__all__ = ["as_sent", "in_order", "oldest_arrival", "rows_of"]

_ARRIVAL = "__arrival"
_FEED = "__feed"
_CONSTANT = b"upstream.constant"
# Rows of one task mostly have one feed and one arrival, and none is a tombstone: sent once, not in each row.
_OFTEN_CONSTANT = {
    TOMBSTONE: pa.bool_(),
    _ARRIVAL: pa.int64(),
    _FEED: pa.dictionary(pa.int32(), pa.string()),
}


def as_sent(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows with the system column to the form in which the scan sends them.

    A system value that is the same in all rows moves to the schema's metadata.
    """
    sent = rows.select(schema.names)
    more = {
        SEQUENCE: pc.fill_null(system_field(rows, "seq"), 0).cast(pa.int64()),
        TOMBSTONE: deleted_mask(rows),
        _ARRIVAL: pa.chunked_array([pa.array(micros(rows, "arrival"))]),
        _FEED: system_field(rows, "source").cast(pa.string()),
    }
    constant: dict[str, Any] = {}
    for name, column in more.items():
        first = column[0].as_py() if name in _OFTEN_CONSTANT and rows.num_rows else None
        if first is not None and pc.all(pc.equal(column, first), skip_nulls=False).as_py():
            constant[name] = first
        else:
            sent = sent.append_column(name, column)
    return sent.replace_schema_metadata({_CONSTANT: json.dumps(constant)})


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of several tasks, from :func:`as_sent` or this function, in order of arrival."""
    parts = sorted((_whole(each) for each in tables if each.num_rows), key=lambda rows: _place(rows, 0))
    if not parts:
        return _whole(tables[0])
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    if all(_is_run(each) for each in parts) and all(map(_precedes, parts, parts[1:])):
        return rows
    text = rows.set_column(rows.schema.get_field_index(_FEED), _FEED, rows.column(_FEED).cast(pa.string()))
    keys = [(name, "ascending") for name in (_ARRIVAL, SEQUENCE, _FEED)]
    return rows.take(pc.sort_indices(text, sort_keys=keys))


def oldest_arrival(rows: pa.Table) -> int | None:
    """Return the first row's arrival in microseconds, given rows in order; None if there are no rows."""
    return int(rows.column(_ARRIVAL)[0].as_py()) if rows.num_rows else None


def rows_of(rows: pa.Table) -> pl.DataFrame:
    """Return rows in the form that an evaluation reads."""
    frame = pl.from_arrow(rows.drop_columns([_ARRIVAL, _FEED]))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _whole(table: pa.Table) -> pa.Table:
    """Restore the columns that were constant, always with the same types."""
    metadata = table.schema.metadata or {}
    constant = json.loads(metadata.get(_CONSTANT, b"{}"))
    columns = [name for name in table.column_names if name not in _OFTEN_CONSTANT]
    whole = table.select(columns).replace_schema_metadata(None)
    for name, dtype in _OFTEN_CONSTANT.items():
        column: pa.Array | pa.ChunkedArray
        if name not in constant:
            column = table.column(name).cast(dtype)
        elif name == _FEED:
            codes = pa.array(np.zeros(table.num_rows, dtype=np.int32))
            column = pa.DictionaryArray.from_arrays(codes, pa.array([constant[name]], pa.string()))
        else:
            column = pa.repeat(pa.scalar(constant[name], dtype), table.num_rows)
        whole = whole.append_column(pa.field(name, dtype), column)
    return whole


def _place(rows: pa.Table, at: int) -> tuple[int, int, str]:
    return rows.column(_ARRIVAL)[at].as_py(), rows.column(SEQUENCE)[at].as_py(), rows.column(_FEED)[at].as_py() or ""


def _precedes(rows: pa.Table, others: pa.Table) -> bool:
    return _place(rows, rows.num_rows - 1) <= _place(others, 0)


def _is_run(rows: pa.Table) -> bool:
    """Return whether arrival and sequence alone determine the rows' order; equal pairs leave it open."""
    arrival, sequence = (rows.column(name).to_numpy() for name in (_ARRIVAL, SEQUENCE))
    later = arrival[1:] > arrival[:-1]
    return bool((later | ((arrival[1:] == arrival[:-1]) & (sequence[1:] > sequence[:-1]))).all())
