"""Aggregates by group on Spark: one shard's batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.report_files import write_report
from ..runtime.run_files import of_worker
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..runtime.store import Store
from .plan import GroupPlan
from .shard import GroupShard

__all__ = ["GroupProcessor"]


class GroupProcessor(ShardProcessor):
    """Runs each shard.

    Parameters
    ----------
    plan : GroupPlan
    folder : str
        Where the shards leave their reports.
    """

    state = "upstream_groups_v1"

    def __init__(self, plan: GroupPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.runtime.shard_processor.ShardProcessor`."""
        result, report = GroupShard(shard, self._plan, store, of_worker()).run(
            [bytes(row.frame) for row in rows], batch_id()
        )
        write_report(self._folder, report)
        return result
