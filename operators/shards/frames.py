"""Frames: many rows as one binary value, so that Spark shuffles and stores a few large values and never a row by itself."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["from_frame", "to_frame"]


def to_frame(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream, uncompressed: Spark compresses what it shuffles."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_frame(frame: bytes | bytearray | memoryview) -> pa.Table:
    """The table that :func:`to_frame` wrote, without copying it."""
    return pa.ipc.open_stream(pa.py_buffer(frame)).read_all()
