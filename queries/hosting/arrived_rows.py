"""Rows of a stream between the scan and the first stage: without the system column, with what of it queries need."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.system_column import deleted_mask, system_field
from ...operators.runtime.arrivals import micros
from ..deltas.streams import SEQUENCE, TOMBSTONE

__all__ = ["as_sent", "in_order", "oldest_arrival", "rows_of"]

_ARRIVAL = "__arrival"
_FEED = "__feed"


def as_sent(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a stream's rows as the scan sends them, from rows with the system column."""
    sent = rows.select(schema.names)
    feed = system_field(rows, "source")
    more = {
        SEQUENCE: pc.fill_null(system_field(rows, "seq"), 0).cast(pa.int64()),
        TOMBSTONE: deleted_mask(rows),
        _ARRIVAL: pa.array(micros(rows, "arrival")),
        _FEED: feed.cast(pa.string()),
    }
    for name, column in more.items():
        sent = sent.append_column(name, column)
    return sent


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several tasks in the order of arrival, whatever the order of the tables."""
    rows = pa.concat_tables(tables).combine_chunks()
    if rows.num_rows < 2:
        return rows
    keys = [(name, "ascending") for name in (_ARRIVAL, SEQUENCE, _FEED)]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def oldest_arrival(rows: pa.Table) -> int | None:
    """Return the arrival of the row that came first; None without rows."""
    found = pc.min(rows.column(_ARRIVAL)).as_py()
    return None if found is None else int(found)


def rows_of(rows: pa.Table) -> pl.DataFrame:
    """Return rows as an evaluation takes them."""
    frame = pl.from_arrow(rows.drop_columns([_ARRIVAL, _FEED]))
    assert isinstance(frame, pl.DataFrame)
    return frame
