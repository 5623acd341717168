"""From rows to frames and back: `pack` makes one frame for each task and shard, `unpack` makes rows of the shards' results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ...conf.clock import now_us
from ...conf.errors import SchemaError
from ...frames.buckets import bucket_of
from ...frames.newest import NewestPerKey, key_codes
from ...frames.order import ordered
from ...frames.reports import Served, write_served
from ...frames.system import SYSTEM, punctuation_mask, standing_for, system_field
from ..queue.keys import ties_within
from .arrivals import by_arrival, differing, micros
from .frames import from_frame, to_frame

__all__ = [
    "PACKED_DDL",
    "ROWS_AT_ONCE",
    "apart",
    "by_shard",
    "check_keys",
    "in_batches",
    "pack",
    "packed",
    "some_at_once",
    "unpack",
]

PACKED_DDL = "slot INT, frame BINARY, control STRING"
_SCHEMA = pa.schema([("slot", pa.int32()), ("frame", pa.binary()), ("control", pa.string())])
ROWS_AT_ONCE = 500_000
"""How many rows are packed together."""

Batches = Iterator[pa.RecordBatch]


def pack(
    key: Sequence[str], slots: Sequence[int], newest_by: str | None, coalesce: bool
) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``.

    Parameters
    ----------
    key
        The update key's columns.
    slots
        What each shard is grouped by. The shard of a key is its bucket (``pmod(hash(key), shards)``).
    newest_by
        The time column, for coalescing.
    coalesce
        Whether only the newest row per key of what a task holds is sent on. Only for policies that keep one row per key.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(batches):
            yield _frames(table, key, slots, newest_by, coalesce)

    return run


def unpack(schema: pa.Schema, drop: Sequence[str], folder: str) -> Callable[[Batches], Batches]:
    """A function for ``mapInArrow``: the rows of frames, in their order, without the columns `drop`.

    How long what follows took to take them is left in `folder`: it is what the rows of this batch cost.
    """

    def run(batches: Batches) -> Batches:
        rows, began_us = 0, 0
        for batch in batches:
            for frame in batch.column("frame"):
                table = from_frame(frame.as_buffer()).drop_columns(list(drop))
                began_us = began_us or now_us()
                rows += table.num_rows
                yield from in_batches(table, schema)
        context = TaskContext.get()
        if context is not None:
            write_served(folder, context.partitionId(), Served(rows, began_us, now_us()))

    return run


def _frames(
    table: pa.Table, key: Sequence[str], slots: Sequence[int], newest_by: str | None, coalesce: bool
) -> pa.RecordBatch:
    shards = len(slots)
    rows, punctuation = apart(table)
    check_keys(rows, key, "queue")
    rows, conflicting = _newest(rows, key, newest_by) if coalesce else (rows, rows.slice(0, 0))
    found: list[tuple[int, bytes]] = []
    if rows.num_rows:
        conflicts = np.bincount(_shards(conflicting, key, shards), minlength=shards)
        for number, part in by_shard(rows, key, shards):
            frame = to_frame(pa.concat_tables([part, punctuation]), conflicts=int(conflicts[number]))
            found.append((number, frame))
    if punctuation.num_rows:
        # Each shard hears of the progress of every feed, whether it has rows or not.
        alone = to_frame(punctuation)
        told = {number for number, _ in found}
        found += [(number, alone) for number in range(shards) if number not in told]
    return packed(found, slots)


def some_at_once(batches: Batches) -> Iterator[pa.Table]:
    """A task's rows, so many at once that a frame of them is worth sending; none without rows."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held)


def in_batches(table: pa.Table, schema: pa.Schema) -> Batches:
    """A frame's rows as Spark takes them."""
    yield from table.cast(schema).combine_chunks().to_batches(max_chunksize=10_000)


def apart(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows, and punctuation rows."""
    mark = punctuation_mask(table)
    punctuation = table.filter(mark)
    return (table.filter(pc.invert(mark)) if punctuation.num_rows else table), punctuation


def check_keys(rows: pa.Table, key: Sequence[str], operator: str) -> None:
    """Refuse rows without a key."""
    for name in key:
        if rows.column(name).null_count:
            raise SchemaError(
                f"{rows.column(name).null_count} rows have no {name}, and it is part of the update key",
                expected="a value in every row: a row without a key updates nothing",
                hint=f"leave such rows out before the {operator}, for example "
                f'where("{name} IS NOT NULL OR {SYSTEM}.punctuation")',
            )


def by_shard(rows: pa.Table, key: Sequence[str], shards: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each shard that has some."""
    shard = _shards(rows, key, shards)
    order = np.argsort(shard, kind="stable")
    rows = rows.take(pa.array(order)).combine_chunks()
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    for number in np.flatnonzero(np.diff(ends)).tolist():
        yield number, rows.slice(ends[number], ends[number + 1] - ends[number])


def packed(found: Sequence[tuple[int, bytes]], slots: Sequence[int]) -> pa.RecordBatch:
    """Frames with their shards, as the operator takes them."""
    numbers = pa.array([slots[number] for number, _ in found], pa.int32())
    ends = np.cumsum([0, *(len(frame) for _, frame in found)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise SchemaError(
            f"{ends[-1]:,} bytes in the rows that one task packs at once",
            expected=f"less than 2 GB: rows of some {np.iinfo(np.int32).max // ROWS_AT_ONCE:,} bytes on average",
            hint="leave out columns that are not needed, or set maxRowsPerTrigger on the source",
        )
    # Joined here once; Arrow would copy each frame into a buffer that it enlarges again and again.
    whole = pa.py_buffer(b"".join(frame for _, frame in found))
    offsets = pa.py_buffer(ends.astype(np.int32))
    frames = pa.BinaryArray.from_buffers(pa.binary(), len(found), [None, offsets, whole])
    return pa.RecordBatch.from_arrays([numbers, frames, pa.nulls(len(found), pa.string())], schema=_SCHEMA)


def _shards(rows: pa.Table, key: Sequence[str], shards: int) -> npt.NDArray[np.int16] | npt.NDArray[np.int32]:
    shard = bucket_of([rows.column(name) for name in key], shards)
    return shard.astype(np.int16) if shards < 1 << 15 else shard  # two bytes are sorted without comparing


def _newest(rows: pa.Table, key: Sequence[str], newest_by: str | None) -> tuple[pa.Table, pa.Table]:
    """The newest row of each key, standing for the others; and of the others, those that conflict with it."""
    none = rows.slice(0, 0)
    if rows.num_rows < 2:
        return rows, none
    rows = by_arrival(rows)
    codes, size = key_codes([rows.column(name) for name in key])
    first_us = micros(rows, "first_arrival", micros(rows, "arrival"))
    covered = pc.fill_null(system_field(rows, "covered"), 1).to_numpy()
    if newest_by is None:
        time = pc.fill_null(system_field(rows, "seq"), 0).to_numpy()
    else:
        time = ordered(rows.column(newest_by))
    newest = NewestPerKey(codes, size, time, first_us, covered)
    if len(newest.rows) == rows.num_rows:
        return rows, none
    pairs = ties_within(codes, size, None if newest_by is None else time, newest.rows)
    other = pairs[differing(rows, pairs[:, 0], rows, pairs[:, 1]), 1]
    return standing_for(rows.take(pa.array(newest.rows)), newest.first_arrival_us, newest.covered), rows.take(
        pa.array(other)
    )
