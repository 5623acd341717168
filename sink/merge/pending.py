"""Rows of a batch before the merge, with the updates that they represent."""

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
    """Rows of a batch with the updates that they represent. Payload columns pass unread."""

    rows: pa.Table  # in the schema of the data files
    arrival_us: Int64s | None  # None without the system column
    first_arrival_us: Int64s | None  # None without the system column
    covered: Int64s  # number of updates that each row represents
    deleted: Mask | None = None  # True for tombstones; None if there are none

    def take(self, positions: Int64s) -> Pending:
        return self._of(self.rows.take(pa.array(positions)), positions)

    def chosen(self, chosen: Mask) -> Pending:
        """Return the chosen rows, in their order.

        Unlike :meth:`take`, it works for rows of any size: a column may hold more than 2 GB of text.
        """
        return self._of(self.rows.filter(pa.array(chosen)), chosen)

    def slice(self, start: int, end: int) -> Pending:
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
    """Return rows as pending rows without arrivals, each of which represents itself."""
    return Pending(rows, None, None, np.ones(rows.num_rows, dtype=np.int64))


def concat_pending(parts: Sequence[Pending]) -> Pending:
    """Concatenate rows of several tasks or batches; arrivals are dropped unless all of them have these."""
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
    """Return the rows' arrival numbers; `NO_SEQ` if a row has none."""
    return int64s(table.column(SEQ), NO_SEQ)


def seq_in_order(table: pa.Table, held: int) -> Int64s:
    """Return the rows' arrival numbers; the first `held` rows are held, and others without a number came later."""
    seq = seq_of(table).copy()
    seq[held:][seq[held:] == NO_SEQ] = UNKNOWN
    return seq


def int64s(column: pa.ChunkedArray, missing: int) -> Int64s:
    """Return a column of whole numbers, with `missing` for nulls."""
    numbers = column.cast(pa.int64()) if column.type != pa.int64() else column
    return (pc.fill_null(numbers, missing) if numbers.null_count else numbers).to_numpy()
