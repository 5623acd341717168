"""A task's rows in bounded memory: rows beyond the bound wait in runs on a local disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...conf.errors import EnvironmentMissingError
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from .incoming import Incoming
from .newest_rows import newest_rows
from .pending import Pending, concat_pending

if TYPE_CHECKING:
    from ..spec.layout import Layout
    from .outputs import SideRowWriter

__all__ = ["Gathering"]

# A task's rows, coalesced to one per key, that stay in memory.
_MOST_ROWS = 1_000_000
_MOST_BYTES = 128 << 20
# Of a run: rows that are read at once, so that no batch of text comes near the 2 GB that one array holds.
_BATCH_ROWS = 65_536

_ARRIVAL, _FIRST_ARRIVAL = "_upstream_arrival", "_upstream_first_arrival"
_COVERED, _DELETED = "_upstream_covered", "_upstream_deleted"


class Gathering:
    """A task's rows, gathered and returned as the newest per key of each bucket. Close it, whatever happens.

    A run is an Arrow file with the newest row per key of some rows, bucket after bucket. At the end each bucket
    is read from all runs, so a task holds no more than a run or one bucket. Most batches never write a run.
    """

    def __init__(
        self, layout: Layout, schema: pa.Schema, side_rows: SideRowWriter | None = None, base: int = 0
    ) -> None:
        self.incoming = Incoming(layout, schema, side_rows, base)
        self._layout = layout
        self._runs: list[_Run] = []
        self._folder: str | None = None

    def close(self) -> None:
        for run in self._runs:
            run.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def runs(self) -> int:
        return len(self._runs)

    def add(self, batch: pa.RecordBatch | Pending) -> None:
        """Add one batch from Spark, or pending rows; a full local disk is an EnvironmentMissingError."""
        if isinstance(batch, Pending):
            self.incoming.take(batch)
        else:
            self.incoming.add(batch)
        rows, size = self.incoming.kept
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            self._spill()

    def by_bucket(self) -> Iterator[tuple[int, Pending]]:
        """Yield the newest row per key of each bucket that has any, in the order of the buckets."""
        if not self._runs:
            yield from _by_bucket(self.incoming.drain(), self._layout)
            return
        self._spill()
        for bucket in sorted({bucket for run in self._runs for bucket in run.batches}):
            parts = [run.read(bucket) for run in self._runs if bucket in run.batches]
            yield bucket, newest_rows(concat_pending(parts), self._layout, self.incoming.lost)

    def _spill(self) -> None:
        rows = self.incoming.drain()
        if rows.rows.num_rows == 0:
            return
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="upstream-", dir=_local_folder())
        try:
            self._runs.append(_Run(Path(self._folder, f"{len(self._runs)}.arrow"), rows, self._layout))
        except OSError as error:
            raise EnvironmentMissingError(
                f"rows of a task cannot be put aside in {self._folder}: {error}",
                expected=f"room on the worker's local disk: of more than {_MOST_ROWS:,} keys a task keeps no more than "
                "these in memory",
                hint="free some room, or name a disk that has it in Spark's spark.local.dir; nothing was written to "
                "the table",
            ) from error


class _Run:
    """Some rows, one per key, in a file; the reader stays open."""

    def __init__(self, path: Path, rows: Pending, layout: Layout) -> None:
        self.batches: dict[int, range] = {}
        written = 0
        schema = _to_table(rows.slice(0, 0)).schema
        # What lies on the disk for seconds is compressed by what costs least.
        with pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for bucket, part in _by_bucket(rows, layout):
                batches = _to_table(part).to_batches(max_chunksize=_BATCH_ROWS)
                for batch in batches:
                    writer.write_batch(batch)
                self.batches[bucket] = range(written, written + len(batches))
                written += len(batches)
        self._file = pa.OSFile(str(path))
        self._reader = pa.ipc.open_file(self._file)

    def read(self, bucket: int) -> Pending:
        return _from_table(pa.Table.from_batches([self._reader.get_batch(number) for number in self.batches[bucket]]))

    def close(self) -> None:
        self._file.close()


def _by_bucket(newest: Pending, layout: Layout) -> Iterator[tuple[int, Pending]]:
    if newest.rows.num_rows == 0:
        return
    if not layout.key or layout.buckets == 1:
        yield 0, newest
        return
    buckets = bucket_of(columns_at(newest.rows, layout.key), layout.buckets)
    order = np.argsort(buckets, kind="stable")
    ordered, buckets = newest.take(order), buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(buckets)], strict=True):
        yield int(buckets[start]), ordered.slice(int(start), int(end))


def _to_table(rows: Pending) -> pa.Table:
    beside: Mapping[str, Any] = {
        _ARRIVAL: rows.arrival_us,
        _FIRST_ARRIVAL: rows.first_arrival_us,
        _COVERED: rows.covered,
        _DELETED: rows.deleted,
    }
    table = rows.rows
    for name, values in beside.items():
        if values is not None:
            table = table.append_column(name, pa.array(values))
    return table


def _from_table(table: pa.Table) -> Pending:
    beside = {name: table.column(name).to_numpy() for name in _BESIDE if name in table.column_names}
    return Pending(
        table.drop_columns(list(beside)),
        beside.get(_ARRIVAL),
        beside.get(_FIRST_ARRIVAL),
        beside[_COVERED],
        beside.get(_DELETED),
    )


_BESIDE = (_ARRIVAL, _FIRST_ARRIVAL, _COVERED, _DELETED)


def _local_folder() -> str | None:
    """Return Spark's local folder on this worker; None for the system's temporary folder."""
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            return folder
    return None
