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
    yield from by_number(rows, bucket_of(columns_at(rows, key), buckets), buckets)


def by_number(rows: pa.Table, numbers: npt.NDArray[np.integer], count: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield each number below `count` that any row has, and its rows in order."""
    if count < 1 << 15:
        numbers = numbers.astype(np.int16)  # two bytes are sorted without comparing
    order = np.argsort(numbers, kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(numbers[order], np.arange(count + 1, dtype=numbers.dtype))
    for number in np.flatnonzero(np.diff(ends)).tolist():
        yield number, rows.slice(ends[number], ends[number + 1] - ends[number])


def frames_column(frames: Sequence[bytes | None]) -> pa.BinaryArray:
    """Return frames as a column, or raise a SchemaError beyond the 2 GB that one column holds."""
    ends = np.cumsum([0, *(len(frame or b"") for frame in frames)])
    most = np.iinfo(np.int32).max
    if ends[-1] > most:
        raise SchemaError(
            f"{ends[-1]:,} bytes in the rows that one task packs at once",
            expected="less than 2 GB, the limit of an Arrow column",
            hint="remove columns that are not needed: some rows are very long",
        )
    # Joined here once; Arrow would copy each frame into a buffer that it enlarges again and again.
    whole, offsets = pa.py_buffer(b"".join(filter(None, frames))), pa.py_buffer(ends.astype(np.int32))
    valid = pa.array([frame is not None for frame in frames], pa.bool_()).buffers()[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(frames), [valid, offsets, whole])
