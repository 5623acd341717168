"""Frames: many rows in one binary value, so that Spark shuffles and stores a few large values."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["conflicts_in", "from_frame", "to_frame"]

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
