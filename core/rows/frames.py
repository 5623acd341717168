"""Frames: many rows in one binary value, which Spark shuffles and stores; a task's rows in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError
from .buckets import bucket_of
from .columns import columns_at
from .system_column import punctuation_mask

_CONFLICTS = b"upstream.conflicts"


def to_frame(table: pa.Table, *, conflicts: int = 0) -> bytes:
    """Return the table as an uncompressed Arrow IPC stream: Spark compresses its shuffles.

    The frame records `conflicts`: rows dropped by coalescing that had a kept row's key and time but another payload.
    """
    if conflicts:
        table = table.replace_schema_metadata({_CONFLICTS: str(conflicts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_frame(frame: bytes | bytearray | memoryview | pa.Buffer) -> pa.Table:
    """Return the table that :func:`to_frame` wrote, without copying it."""
    return pa.ipc.open_stream(pa.py_buffer(frame)).read_all()


def conflicts_in(table: pa.Table) -> int:
    """Return the number of conflicts that :func:`to_frame` was given."""
    return int((table.schema.metadata or {}).get(_CONFLICTS, 0))


ROWS_AT_ONCE = 500_000
"""The most rows that are packed together."""

_BYTES_AT_ONCE = 256 << 20


def some_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield a task's rows in tables large enough for a frame and small enough for memory; none without rows."""
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    for part in _bounded(batches):
        held.append(part)
        rows += part.num_rows
        held_bytes += part.nbytes
        if rows >= ROWS_AT_ONCE or held_bytes >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, rows, held_bytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with batches of very long rows split."""
    for batch in batches:
        most = max(1, batch.num_rows * _BYTES_AT_ONCE // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


def split_punctuation(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows, and the punctuation rows."""
    mark = punctuation_mask(table)
    count = int(pc.sum(mark).as_py() or 0)
    rows = table.num_rows - count
    if count == 0 or int(pc.sum(mark.slice(rows)).as_py()) == count:
        return table.slice(0, rows), table.slice(rows)  # usually it is at the end: nothing is copied
    return table.filter(pc.invert(mark)), table.filter(mark)


def by_bucket(rows: pa.Table, key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number and the rows of each bucket (or shard) that has rows."""
    bucket = _buckets(rows, key, buckets)
    order = np.argsort(bucket, kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(bucket[order], np.arange(buckets + 1))
    for number in np.flatnonzero(np.diff(ends)).tolist():
        yield number, rows.slice(ends[number], ends[number + 1] - ends[number])


def frames_column(frames: Sequence[bytes]) -> pa.BinaryArray:
    """Return frames as a column, or raise a SchemaError beyond the 2 GB that one column holds."""
    ends = np.cumsum([0, *(len(frame) for frame in frames)])
    most = np.iinfo(np.int32).max
    if ends[-1] > most:
        raise SchemaError(
            f"{ends[-1]:,} bytes in the rows that one task packs at once",
            expected="less than 2 GB, the limit of an Arrow column",
            hint="remove columns that are not needed: some rows are very long",
        )
    # Joined here once; Arrow would copy each frame into a buffer that it enlarges again and again.
    whole, offsets = pa.py_buffer(b"".join(frames)), pa.py_buffer(ends.astype(np.int32))
    return pa.BinaryArray.from_buffers(pa.binary(), len(frames), [None, offsets, whole])


def _buckets(rows: pa.Table, key: Sequence[str], buckets: int) -> npt.NDArray[np.int16] | npt.NDArray[np.int32]:
    bucket = bucket_of(columns_at(rows, key), buckets)
    return bucket.astype(np.int16) if buckets < 1 << 15 else bucket  # two bytes are sorted without comparing
