"""From rows to frames of each feed's shard, in the order in which a task has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ...core.pushdown.ipc_frames import to_frame
from ...core.rows.split import by_bucket, some_at_once
from ...core.rows.system_column import TIMESTAMP
from ..runtime.pack import packed
from .plan import ARRIVAL, FEED

__all__ = ["frames_of", "intake_pack", "place_of"]

_PLACE = b"upstream.place"

Batches = Iterator[pa.RecordBatch]


def intake_pack(slots: Sequence[int], *, every_shard: bool) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames.

    Parameters
    ----------
    slots
        The number by which Spark groups each shard's frames. The shard of a feed is the bucket of its name.
    every_shard
        Whether each shard gets a frame of each batch, so that the clock moves silent feeds as well.
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
    """Return the frames of some of a task's rows.

    Parameters
    ----------
    table : pyarrow.Table
        Rows with :data:`FEED` and :data:`ARRIVAL`.
    slots, every_shard
        As for :func:`intake_pack`.
    place : tuple of int
        The task's number and the part's number within it: frames are sorted by these.
    clock_us : int
        When the batch began, for a batch without rows, from whose arrivals it would follow.
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
    """Return the arrival of a frame's rows, their task's number, and the number of their part."""
    found: Any = json.loads(frame.schema.metadata[_PLACE])
    return tuple(np.array(found, dtype=np.int64).tolist())
