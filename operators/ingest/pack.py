"""Pack rows into frames for each feed's shard, in the task's order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ...core.rows.frames import by_bucket, some_at_once, to_frame
from ...core.rows.system_column import TIMESTAMP
from ..runtime.pack import packed
from .plan import ARRIVAL, FEED

_PLACE = b"upstream.place"

Batches = Iterator[pa.RecordBatch]


def intake_pack(slots: Sequence[int], *, every_shard: bool) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames.

    The shard of a feed is the bucket of its name, and `slots` has Spark's grouping number of each shard. With
    `every_shard` each shard gets a frame in each batch, so that the clock also moves silent feeds.
    """

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for number, table in enumerate(some_at_once(batches)):
            yield frames_of(table, slots, (task, number), every_shard=every_shard)

    return run


def frames_of(
    table: pa.Table, slots: Sequence[int], place: tuple[int, int], *, every_shard: bool, clock_us: int = 0
) -> pa.RecordBatch:
    """Return the frames of rows that have :data:`FEED` and :data:`ARRIVAL`.

    `place` is the task's number and the part's number within it, by which frames are sorted. `clock_us` is the batch's
    start: it stands in for the arrival of a batch without rows.
    """
    arrived = pc.max(table.column(ARRIVAL).cast(TIMESTAMP).cast(pa.int64())).as_py()
    arrival_us = clock_us if arrived is None else int(arrived)
    rows = table.drop_columns([ARRIVAL])
    metadata = {_PLACE: json.dumps([arrival_us, *place])}
    parts = dict(by_bucket(rows, [FEED], len(slots)))
    if every_shard:
        parts = {number: parts.get(number, rows.slice(0, 0)) for number in range(len(slots))}
    return packed([(number, to_frame(part.replace_schema_metadata(metadata))) for number, part in parts.items()], slots)


def place_of(frame: pa.Table) -> tuple[int, ...]:
    """Return a frame's sort key: its arrival in microseconds, the task's number, and the part's number."""
    found: Any = json.loads(frame.schema.metadata[_PLACE])
    return tuple(np.array(found, dtype=np.int64).tolist())
