"""Spark's adapter of aggregates by group."""

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
    """A runner of one shard's batch. `folder` is where the shards report."""

    state = "upstream_groups_v1"

    def __init__(self, plan: GroupPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        result, report = GroupShard(shard, self._plan, store, of_worker()).run(
            [bytes(row.frame) for row in rows], batch_id()
        )
        write_report(self._folder, report)
        return result
