"""Unions, merges, ordered release and distinct on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.report_files import write_report
from ..runtime.rows_aside import RowsAside
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..runtime.store import Store
from .plan import ReorderPlan
from .shard import ReorderShard

__all__ = ["ReorderProcessor"]


class ReorderProcessor(ShardProcessor):
    """Runs each shard.

    Parameters
    ----------
    plan : ReorderPlan
    folder : str
        Where the shards leave their reports.
    late : RowsAside or None
        Where refused rows go.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so rows that are held survive any crash, and a batch
    that is run again gives the same rows and the same files.
    """

    state = "upstream_reorder_v1"

    def __init__(self, plan: ReorderPlan, folder: str, late: RowsAside | None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.runtime.shard_processor.ShardProcessor`."""
        frames = [bytes(row.frame) for row in rows if row.frame is not None]
        operator = ReorderShard(shard, self._plan, store)
        result, report = operator.run(frames, batch_id())
        if operator.refused is not None and self._late is not None:
            self._late.write(report.batch_id, shard, operator.refused)
        write_report(self._folder, report)
        return result
