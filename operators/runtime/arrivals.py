"""The arrival order of rows, and conflicts between rows of one key and time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows import conflicts
from ...core.rows.system_column import SYSTEM, TIMESTAMP, system_field

__all__ = ["INTERVAL", "WEIGHT", "by_arrival", "differing", "micros"]

Int64s = npt.NDArray[np.int64]

WEIGHT, INTERVAL = "__upstream_weight", "__upstream_interval_us"
"""Columns that a stream adds for a key's weight and access interval. They are no part of a row's payload."""


def by_arrival(rows: pa.Table) -> pa.Table:
    """Sort rows by arrival, so that the order in which a task reads feeds or frames does not matter."""
    if rows.num_rows < 2:
        return rows
    arrival, seq = micros(rows, "arrival"), pc.fill_null(system_field(rows, "seq"), 0).to_numpy()
    later = np.diff(arrival)
    if np.all((later > 0) | ((later == 0) & (np.diff(seq) > 0))):
        return rows
    source = system_field(rows, "source")
    if pa.types.is_dictionary(source.type):
        source = _ranks(source)
    keys = pa.table([pa.array(arrival), pa.array(seq), source], ["arrival", "seq", "source"])
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _ranks(names: pa.ChunkedArray) -> pa.Array:
    """Return each name's rank among all names, for sorting a dictionary column."""
    whole = names.unify_dictionaries().combine_chunks()
    return pc.rank(whole.dictionary, tiebreaker="dense").take(whole.indices)


def micros(rows: pa.Table, name: str, default: Int64s | None = None) -> Int64s:
    """Return a time of the system column in microseconds. Nulls become `default`, or 0 without one."""
    column = system_field(rows, name).cast(TIMESTAMP).cast(pa.int64())
    if column.null_count == 0:
        return column.to_numpy().astype(np.int64, copy=False)
    filled = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return filled if default is None else np.where(pc.is_valid(column).to_numpy(), filled, default)


def differing(left: pa.Table, at: Int64s, right: pa.Table, other: Int64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs of rows whose payloads differ: a conflict if they have one key and one time."""
    names = [name for name in left.column_names if name not in (SYSTEM, WEIGHT, INTERVAL)]
    return conflicts.differing(left, at, right, other, names)
