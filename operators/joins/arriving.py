"""The rows that arrive at a shard, and the checks of a join by time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError, SchemaError
from ...core.pushdown.ipc_frames import from_frame
from ...core.rows.columns import columns_at, null_rows
from ...core.rows.exact_integers import Int64s
from ...core.rows.sort_keys import ordered
from ...core.rows.split import split_punctuation
from ...core.rows.system_column import deleted_mask, system_field
from .matching import key_numbers

__all__ = ["as_schema", "checked_rows", "checked_times", "numbers_of", "rows_in", "without_key"]

Mask = npt.NDArray[np.bool_]


def rows_in(frames: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Return the rows of some frames, and their punctuation, with the columns of a schema."""
    tables = [as_schema(from_frame(frame), schema) for frame in frames]
    return split_punctuation(pa.concat_tables([schema.empty_table(), *tables]))


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, with its types. A table that has them is not cast: casts are slow."""
    table = table.select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def without_key(rows: pa.Table, names: Sequence[str]) -> Mask:
    """Return which rows have a null in one of some columns."""
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in columns_at(rows, names):
        found |= null_rows(column)
    return found


def numbers_of(rows: pa.Table, names: Sequence[str]) -> Int64s:
    """Return the :func:`~upstream.operators.joins.matching.key_numbers` of rows."""
    return key_numbers(columns_at(rows, names)) if rows.num_rows else np.empty(0, dtype=np.int64)


def checked_rows(rows: pa.Table, *, tombstones: bool = False, step: str = "join") -> pa.Table:
    """Return the rows; refuse coalesced ones, and tombstones unless they are allowed."""
    covered = system_field(rows, "covered")
    if len(covered) and int(pc.max(covered).as_py() or 1) > 1:
        raise SchemaError(
            f"a row before the {step} stands for several updates, of which the others were coalesced",
            expected=f"every row: a {step} over the newest ones only would miss others",
            hint=f"put the {step} before the queue, and read the source without coalescing",
        )
    gone = int(pc.sum(deleted_mask(rows)).as_py() or 0)
    if gone and not tombstones:
        raise SchemaError(
            f"{gone} rows before the join are tombstones",
            expected="rows with values: a join by time wants each row that there was, and a tombstone takes rows back",
            hint="leave them out before the join, with a function over the source, or read without `deleted`",
        )
    return rows


def checked_times(rows: pa.Table, name: str) -> Int64s:
    """Return the rows' times as numbers; refuse a row without one."""
    column = rows.column(name)
    if column.null_count:
        raise MalformedRowError(
            f"{column.null_count} of {len(column)} rows have no time in {name!r}, so nothing can be said of when they "
            "meet others",
            expected="a time in each row",
            hint="take such rows out before the join, and count them",
        )
    return ordered(column).astype(np.int64, copy=False)
