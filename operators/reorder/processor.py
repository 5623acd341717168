"""The Spark processor of unions, merges, ordered release, and distinct."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import write_report
from ..runtime.dead_letters import DeadLetterRows
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.store import Store
from .plan import ReorderPlan
from .shard import ReorderShard


class ReorderProcessor(ShardProcessor):
    """The processor of each shard; `late` takes refused rows.

    Spark stores a batch's state with the batch. So held rows survive a crash, and a rerun gives the same rows and
    files.
    """

    state = "upstream_reorder_v1"

    def __init__(self, plan: ReorderPlan, folder: str, late: DeadLetterRows | None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames = [bytes(row.frame) for row in rows if row.frame is not None]
        operator = ReorderShard(shard, self._plan, store)
        result, report = operator.run(frames, batch_id())
        if operator.refused is not None and self._late is not None:
            self._late.write(report.batch_id, shard, operator.refused)
        write_report(self._folder, report)
        return result
