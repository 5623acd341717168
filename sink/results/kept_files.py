"""Data files of small tables, whose rows stay in the process that wrote them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ..table.files import BucketReader, DataFiles, StagedFile, conform

if TYPE_CHECKING:
    from ...delta_format.deletion_vectors import DeletionVector
    from ..table.files import Mask

__all__ = ["KeptFiles"]

# A bucket with more rows need not be read whole: then its files' footers count.
_MOST_ROWS = 8_192
# In a process; a worker has several at most.
_MOST_BYTES = 64 << 20


class KeptFiles(DataFiles):
    """A table's data files, with a cache of the rows of small ones that this process wrote.

    To open and read a small Parquet file takes up to a third of a small merge. A file never changes and its
    name never recurs, so the cache is never stale.
    """

    def stage(
        self, rows: pa.Table, bucket: int | None, fresh: int, arrival_us: bytes | None = None, *, to_last: bool = False
    ) -> StagedFile:
        staged = super().stage(rows, bucket, fresh, arrival_us, to_last=to_last)
        if rows.num_rows <= _MOST_ROWS:
            _kept.put(staged.path, rows)
        return staged

    def open(self, paths: Sequence[str], dead: Sequence[Mask | DeletionVector | None] = ()) -> BucketReader:
        if paths and all(each is None for each in dead):
            found = [each for each in map(_kept.get, paths) if each is not None]
            if len(found) == len(paths) and sum(each.num_rows for each in found) <= _MOST_ROWS:
                return _KeptReader(pa.concat_tables(found), self.schema, paths)
        return super().open(paths, dead)


class _KeptReader(BucketReader):
    """A reader of a bucket's cached rows."""

    def __init__(self, whole: pa.Table, schema: pa.Schema, paths: Sequence[str]) -> None:
        self._whole = whole
        self._paths = paths
        self._files = ()
        self.schema = schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        return conform(self._whole.select(columns), pa.schema([self.schema.field(name) for name in columns]))

    @property
    def rows(self) -> int:
        return self._whole.num_rows

    def apart_from(self, rows: pa.Table, key: Sequence[str]) -> bool:
        """Return False, which promises nothing: a look at so few rows takes no time."""
        del rows, key
        return False


class _Kept:
    """A least-recently-used cache of rows by file name."""

    def __init__(self) -> None:
        self._rows: dict[str, pa.Table] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, path: str, rows: pa.Table) -> None:
        rows = _owned(rows)
        with self._lock:
            self._rows[path] = rows
            self._bytes += rows.nbytes
            while self._bytes > _MOST_BYTES:
                self._bytes -= self._rows.pop(next(iter(self._rows))).nbytes

    def get(self, path: str) -> pa.Table | None:
        with self._lock:
            rows = self._rows.pop(path, None)
            if rows is not None:
                self._rows[path] = rows
            return rows


_kept = _Kept()


def _owned(rows: pa.Table) -> pa.Table:
    """Return rows in buffers of their own: a slice of a batch would keep the whole batch in memory."""
    if any(column.num_chunks < 2 for column in rows.columns):
        rows = rows.take(pa.array(np.arange(rows.num_rows)))
    return rows.combine_chunks()
