"""The update queue on Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import write_report
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.store import Store
from .control import Control, ShardPlan
from .shard import QueueShard


class QueueProcessor(ShardProcessor):
    """The stateful processor of each shard's queue; the shards report to `folder`.

    Guarantee: Spark keeps the state of a batch with the batch, so waiting rows survive any crash. A repeated batch
    starts from the same state and yields the same rows.
    """

    state = "upstream_queue_v1"

    def __init__(self, plan: ShardPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames: list[bytes] = []
        control: Control | None = None
        for row in rows:
            if row.frame is not None:
                frames.append(bytes(row.frame))
            if row.control is not None:
                control = Control.from_json(row.control)
        result, report = QueueShard(shard, self._plan, store).run(frames, control)
        write_report(self._folder, dataclasses.replace(report, batch_id=batch_id()))
        return result
