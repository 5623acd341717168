"""Rows of a batch before the merge, with the updates that they represent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import Int64s, Mask
from ...delta_format.latest_table import SEQ
from ..table.key_index import key_hashes

UNKNOWN = int(np.iinfo(np.int64).max)
"""What stands for an arrival that a row does not have."""

NO_SEQ = int(np.iinfo(np.int64).min)
"""What stands for the number of a row that has none."""


@dataclasses.dataclass
class BatchRows:
    """Rows of a batch with the updates that they represent. Payload columns pass unread."""

    rows: pa.Table  # in the schema of the data files
    arrival_us: Int64s | None  # None without the system column
    first_arrival_us: Int64s | None  # None without the system column
    covered: Int64s  # number of updates that each row represents
    deleted: Mask | None = None  # True for tombstones; None if there are none

    def take(self, positions: Int64s) -> BatchRows:
        return self._of(self.rows.take(pa.array(positions)), positions)

    def chosen(self, chosen: Mask) -> BatchRows:
        """Return the chosen rows in order, also from columns of more than 2 GB of text, unlike :meth:`take`."""
        return self._of(self.rows.filter(pa.array(chosen)), chosen)

    def slice(self, start: int, end: int) -> BatchRows:
        return self._of(self.rows.slice(start, end - start), slice(start, end))

    def _of(self, rows: pa.Table, which: Any) -> BatchRows:
        return BatchRows(
            rows,
            None if self.arrival_us is None else self.arrival_us[which],
            None if self.first_arrival_us is None else self.first_arrival_us[which],
            self.covered[which],
            None if self.deleted is None else self.deleted[which],
        )


def as_pending(rows: pa.Table) -> BatchRows:
    """Return rows as pending rows without arrivals, each of which represents itself."""
    return BatchRows(rows, None, None, np.ones(rows.num_rows, dtype=np.int64))


def concat_pending(parts: Sequence[BatchRows]) -> BatchRows:
    """Concatenate rows of several tasks or batches; arrivals are dropped unless all of them have these."""
    if len(parts) == 1:
        return parts[0]
    arrivals = [part.arrival_us for part in parts if part.arrival_us is not None]
    firsts = [part.first_arrival_us for part in parts if part.first_arrival_us is not None]
    marked = any(part.deleted is not None for part in parts)
    marks = [np.zeros(len(part.covered), np.bool_) if part.deleted is None else part.deleted for part in parts]
    return BatchRows(
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


MOST_HASHES = 1 << 16
"""The number of hashes that a task sends to the commit: half a megabyte. Beyond it, keys are only counted."""


class OlderKeys(NamedTuple):
    """Keys of one bucket whose newest row in the batch was older than the table's."""

    total: int = 0
    hashes: bytes | None = b""  # an int64 for each key; None if there are too many

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str], won: Mask, most: int) -> OlderKeys:
        """Return the keys of which no row has won; without a key's columns, rows count.

        Beyond `most` lost rows there are no hashes, and each row counts.
        """
        lost = int((~won).sum())
        if lost == 0 or not key:
            return cls(lost)
        if lost > most:
            return cls(lost, None)
        return cls._of(key_hashes(rows.filter(pa.array(~won)), key), key_hashes(rows.filter(pa.array(won)), key))

    @classmethod
    def together(cls, several: Sequence[OlderKeys], newer: Int64s | None = None) -> OlderKeys:
        """Return the keys of one bucket that several tasks found, except those that have won (`newer`, hashes).

        If one of the tasks has no hashes, a key counts once per task.
        """
        if len(several) == 1 and newer is None:
            return several[0]
        found = [each.hashes for each in several]
        hashes = [np.frombuffer(each, dtype=np.int64) for each in found if each is not None]
        if len(hashes) < len(found) or any(each.total * 8 != len(each.hashes or b"") for each in several):
            return cls(sum(each.total for each in several), None)
        none = np.empty(0, dtype=np.int64)
        return cls._of(np.concatenate([none, *hashes]), none if newer is None else newer)

    @classmethod
    def _of(cls, lost: Int64s, won: Int64s) -> OlderKeys:
        older = np.setdiff1d(lost, won)
        return cls(len(older), older.tobytes())


def counted(buckets: Iterable[Sequence[OlderKeys]]) -> int:
    """Return the number of keys in all buckets, from each bucket's tasks."""
    return sum(OlderKeys.together(each).total for each in buckets)
