"""Parquet files of any writer, opened so that their times are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

__all__ = ["has_old_calendar", "open_parquet", "rows_at"]

_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def open_parquet(where: str | BinaryIO, filesystem: Any = None, *, memory_map: bool = False) -> ParquetFile:
    """Open a Parquet file with INT96 times, Spark's default, as microseconds.

    Arrow's default of nanoseconds silently wraps times beyond the year 2262.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(where, filesystem=filesystem, memory_map=memory_map, coerce_int96_timestamp_unit="us")


def rows_at(file: ParquetFile, positions: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows at increasing positions, reading only their row groups."""
    sizes = np.array([file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)], np.int64)
    ends = np.cumsum(sizes)
    group = np.searchsorted(ends, positions, side="right")
    chosen = np.unique(group)
    before = np.cumsum(sizes[chosen]) - sizes[chosen]
    within = positions - (ends - sizes)[group] + before[np.searchsorted(chosen, group)]
    rows = file.read_row_groups(chosen.tolist(), columns=list(columns), use_threads=False)
    return rows.take(pa.array(within))


def has_old_calendar(footer: FileMetaData) -> bool:
    """Return whether Spark wrote a file's dates and times in its calendar before version 3, with other early days."""
    return any(name in (footer.metadata or {}) for name in _OLD_CALENDAR)
