"""The update queue on Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.report_files import write_report
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..runtime.store import Store
from .control import Control, ShardPlan
from .shard import QueueShard

__all__ = ["QueueProcessor"]


class QueueProcessor(ShardProcessor):
    """Runs each shard's queue.

    Parameters
    ----------
    plan : ShardPlan
    folder : str
        Where the shards leave their reports.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so rows that wait survive any crash, and a batch that is
    run again starts from the same state and gives the same rows.
    """

    state = "upstream_queue_v1"

    def __init__(self, plan: ShardPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.runtime.shard_processor.ShardProcessor`."""
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
