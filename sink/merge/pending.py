"""Rows of a batch on their way to the table, with the updates that they represent. Payload columns are never looked at:
they are moved as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...delta_format.latest_table import SEQ

__all__ = [
    "NO_SEQ",
    "UNKNOWN",
    "Int64s",
    "Mask",
    "Pending",
    "as_pending",
    "concat_pending",
    "int64s",
    "seq_in_order",
    "seq_of",
]

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

UNKNOWN = int(np.iinfo(np.int64).max)
"""What stands for an arrival that a row does not have."""

NO_SEQ = int(np.iinfo(np.int64).min)
"""What stands for the number of a row that has none."""


@dataclasses.dataclass
class Pending:
    """Rows of a batch with the updates that they represent.

    Attributes
    ----------
    rows : pyarrow.Table
        In the schema of the data files.
    arrival_us, first_arrival_us : int64 arrays of length rows, or None
        None where the rows carry no system column.
    covered : int64 array of length rows
    deleted : bool array of length rows, or None
        Which rows are tombstones; None where none is.
    """

    rows: pa.Table
    arrival_us: Int64s | None
    first_arrival_us: Int64s | None
    covered: Int64s
    deleted: Mask | None = None

    def take(self, positions: Int64s) -> Pending:
        """Return some of the rows, by their positions."""
        return self._of(self.rows.take(pa.array(positions)), positions)

    def chosen(self, chosen: Mask) -> Pending:
        """Return the chosen rows, in their order.

        Unlike :meth:`take`, it works for rows of any size: a column may hold more than 2 GB of text.
        """
        return self._of(self.rows.filter(pa.array(chosen)), chosen)

    def slice(self, start: int, end: int) -> Pending:
        """Return the rows from `start` up to `end`."""
        return self._of(self.rows.slice(start, end - start), slice(start, end))

    def _of(self, rows: pa.Table, which: Any) -> Pending:
        return Pending(
            rows,
            None if self.arrival_us is None else self.arrival_us[which],
            None if self.first_arrival_us is None else self.first_arrival_us[which],
            self.covered[which],
            None if self.deleted is None else self.deleted[which],
        )


def as_pending(rows: pa.Table) -> Pending:
    """Return rows of which only the columns are known as pending rows."""
    return Pending(rows, None, None, np.ones(rows.num_rows, dtype=np.int64))


def concat_pending(parts: Sequence[Pending]) -> Pending:
    """Concatenate rows of several tasks or batches. Arrival is known only if all of them have it."""
    if len(parts) == 1:
        return parts[0]
    arrivals = [part.arrival_us for part in parts if part.arrival_us is not None]
    firsts = [part.first_arrival_us for part in parts if part.first_arrival_us is not None]
    marked = any(part.deleted is not None for part in parts)
    marks = [np.zeros(len(part.covered), np.bool_) if part.deleted is None else part.deleted for part in parts]
    return Pending(
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate(arrivals) if len(arrivals) == len(parts) else None,
        np.concatenate(firsts) if len(firsts) == len(parts) else None,
        np.concatenate([part.covered for part in parts]),
        np.concatenate(marks) if marked else None,
    )


def seq_of(table: pa.Table) -> Int64s:
    """Return the arrival order of rows; the least number if it is unknown."""
    return int64s(table.column(SEQ), NO_SEQ)


def seq_in_order(table: pa.Table, held: int) -> Int64s:
    """Return the arrival order of rows, the first `held` of which are held.

    A row that comes without a number came after those that are held.
    """
    seq = seq_of(table).copy()
    seq[held:][seq[held:] == NO_SEQ] = UNKNOWN
    return seq


def int64s(column: pa.ChunkedArray, missing: int) -> Int64s:
    """Return a column of whole numbers, with `missing` for nulls."""
    numbers = column.cast(pa.int64()) if column.type != pa.int64() else column
    return (pc.fill_null(numbers, missing) if numbers.null_count else numbers).to_numpy()
