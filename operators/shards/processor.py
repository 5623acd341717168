"""The update queue on Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Row

from ...frames.reports import write_report
from .messages import Control, ShardPlan
from .on_spark import ShardProcessor, batch_id
from .pack import rows_to_frame
from .queue_shard import QueueShard
from .store import Store

__all__ = ["QueueProcessor"]


class QueueProcessor(ShardProcessor):
    """Runs each shard's queue.

    Parameters
    ----------
    plan : ShardPlan
    slots : sequence of int
        What each shard is grouped by.
    folder : str
        Where the shards leave their reports.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so rows that wait survive any crash, and a batch that is run again
    starts from the same state and gives the same rows.
    """

    def __init__(self, plan: ShardPlan, slots: Sequence[int], folder: str) -> None:
        super().__init__("upstream_queue_v1", slots, folder, rows_to_frame)
        self._plan = plan

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.shards.on_spark.ShardProcessor`."""
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
