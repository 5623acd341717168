"""Conversion of rows to frames, one for each task and shard, and of the shards' results to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import SchemaError
from ...conf.units import now_us
from ...core.feedback.reports import ServiceReport, write_report
from ...core.rows import newest
from ...core.rows.buckets import bucket_of
from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import by_bucket, frames_column, from_frame, some_at_once, split_punctuation, to_frame
from ...core.rows.newest import NewestPerKey, key_codes, ties_within
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import SYSTEM, TIMESTAMP, standing_for, system_field

WEIGHT, INTERVAL = "__upstream_weight", "__upstream_interval_us"
"""Columns that a stream adds for a key's weight and access interval. They are not part of a row's payload."""


def by_arrival(rows: pa.Table) -> pa.Table:
    """Sort rows by arrival, so that the order in which a task reads feeds or frames does not matter."""
    if rows.num_rows < 2:
        return rows
    arrival, seq = micros(rows, "arrival"), pc.fill_null(system_field(rows, "seq"), 0).to_numpy()
    later = np.diff(arrival)
    if np.all((later > 0) | ((later == 0) & (np.diff(seq) > 0))):
        return rows
    source = system_field(rows, "source")
    if pa.types.is_dictionary(source.type):
        source = _ranks(source)
    keys = pa.table([pa.array(arrival), pa.array(seq), source], ["arrival", "seq", "source"])
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _ranks(names: pa.ChunkedArray) -> pa.Array:
    """Return each name's rank among all names, for sorting a dictionary column."""
    whole = names.unify_dictionaries().combine_chunks()
    return pc.rank(whole.dictionary, tiebreaker="dense").take(whole.indices)


def micros(rows: pa.Table, name: str, default: Int64s | None = None) -> Int64s:
    """Return a time of the system column in microseconds. Nulls become `default`, or 0 without one."""
    column = system_field(rows, name).cast(TIMESTAMP).cast(pa.int64())
    if column.null_count == 0:
        return column.to_numpy().astype(np.int64, copy=False)
    filled = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return filled if default is None else np.where(pc.is_valid(column).to_numpy(), filled, default)


def differing(left: pa.Table, at: Int64s, right: pa.Table, other: Int64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs of rows whose payloads differ: a conflict if they have one key and one time."""
    names = [name for name in left.column_names if name not in (SYSTEM, WEIGHT, INTERVAL)]
    return newest.differing(left, at, right, other, names)


FRAME_DDL = "frame BINARY"
PACKED_DDL = "slot INT, frame BINARY, control STRING"
PACKED = pa.schema([("slot", pa.int32()), ("frame", pa.binary()), ("control", pa.string())])

Batches = Iterator[pa.RecordBatch]


def pack(
    key: Sequence[str], slots: Sequence[int], newest_by: str | None, coalesce: bool, operator: str = "queue"
) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames, one for each shard.

    The shard of a key is its bucket (``pmod(hash(key), shards)``); Spark groups its frames by ``slots[shard]``. With
    `coalesce`, only the task's newest row of each key by `newest_by` is packed, for policies that keep one row per key.
    `operator` is the name for users, in errors.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(batches):
            yield _frames(table, key, slots, newest_by, coalesce, operator)

    return run


def unpack(schema: pa.Schema, drop: Sequence[str], folder: str) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that yields the rows of frames in order, without the columns `drop`.

    It reports to `folder` how long the following steps took for the rows: the cost of this batch.
    """

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext  # the workbench reads reports without Spark

        rows, began_us = 0, 0
        for batch in batches:
            for frame in batch.column("frame"):
                table = from_frame(frame.as_buffer()).drop_columns(list(drop))
                began_us = began_us or now_us()
                rows += table.num_rows
                yield from in_batches(table, schema)
        context = TaskContext.get()
        if context is not None:
            write_report(folder, ServiceReport(context.partitionId(), rows, began_us, now_us()))

    return run


def rows_to_frame(batches: Batches) -> Batches:
    """Pack a shard's rows into one frame, for :func:`frames_to_rows`."""
    frame = to_frame(pa.Table.from_batches(list(batches)))
    yield pa.RecordBatch.from_arrays([pa.array([frame], pa.binary())], ["frame"])


def frames_to_rows(schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that yields the rows of frames in order."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for frame in batch.column("frame"):
                yield from in_batches(from_frame(frame.as_buffer()), schema)

    return run


def _frames(
    table: pa.Table, key: Sequence[str], slots: Sequence[int], newest_by: str | None, coalesce: bool, operator: str
) -> pa.RecordBatch:
    shards = len(slots)
    rows, punctuation = split_punctuation(table)
    check_keys(rows, key, operator)
    rows, conflicting = newest_rows(rows, key, newest_by) if coalesce else (rows, rows.slice(0, 0))
    found: list[tuple[int, bytes]] = []
    if rows.num_rows:
        conflicts = np.bincount(bucket_of([conflicting.column(name) for name in key], shards), minlength=shards)
        for number, part in by_bucket(rows, key, shards):
            frame = to_frame(pa.concat_tables([part, punctuation]), conflicts=int(conflicts[number]))
            found.append((number, frame))
    if punctuation.num_rows:
        # Each shard receives the punctuation of every feed, even without rows.
        alone = to_frame(punctuation)
        reached = {number for number, _ in found}
        found += [(number, alone) for number in range(shards) if number not in reached]
    return packed(found, slots)


def in_batches(table: pa.Table, schema: pa.Schema) -> Batches:
    """Yield a frame's rows as batches for Spark."""
    yield from table.cast(schema).combine_chunks().to_batches(max_chunksize=10_000)


def check_keys(rows: pa.Table, key: Sequence[str], operator: str, part_of: str = "update key") -> None:
    """Refuse rows without a key."""
    for name in key:
        if rows.column(name).null_count:
            raise SchemaError(
                f"{rows.column(name).null_count} rows have no {name}, and it is part of the {part_of}",
                expected="a value in every row: a row without a key updates nothing",
                hint=f"leave such rows out before the {operator}, for example "
                f'where("{name} IS NOT NULL OR {SYSTEM}.punctuation")',
            )


def packed(found: Sequence[tuple[int, bytes]], slots: Sequence[int]) -> pa.RecordBatch:
    """Return frames with their shards' slots, as operators receive them."""
    numbers = pa.array([slots[number] for number, _ in found], pa.int32())
    frames = frames_column([frame for _, frame in found])
    return pa.RecordBatch.from_arrays([numbers, frames, pa.nulls(len(found), pa.string())], schema=PACKED)


def newest_rows(rows: pa.Table, key: Sequence[str], newest_by: str | None) -> tuple[pa.Table, pa.Table]:
    """Return the newest row of each key, which counts the superseded ones, and those that conflict with it."""
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
