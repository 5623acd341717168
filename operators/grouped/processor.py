"""Spark's adapters of aggregates and of windows by group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import write_report
from ..runtime.dead_letters import DeadLetterRows
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.runs import of_worker
from ..state.store import Store
from .plan import GroupPlan, GroupWindowPlan
from .shard import GroupShard
from .window_shard import WindowGroupShard, WindowVersionShard


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


class WindowVersionProcessor(ShardProcessor):
    """A runner of one shard's batch of the newest rows of windows.

    `folder` is where the shards report; without `late`, late rows are only counted.
    """

    state = "upstream_window_versions_v1"
    shard: type[WindowVersionShard | WindowGroupShard] = WindowVersionShard

    def __init__(self, plan: GroupWindowPlan, folder: str, late: DeadLetterRows | None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        operator = self.shard(shard, self._plan, store)
        result, report = operator.run([bytes(row.frame) for row in rows], batch_id())
        if self._late is not None and operator.late is not None:
            self._late.write(report.batch_id, report.shard, operator.late)
        write_report(self._folder, report)
        return result


class WindowGroupProcessor(WindowVersionProcessor):
    """A runner of one shard's batch of the windows by group."""

    state = "upstream_window_groups_v1"
    shard = WindowGroupShard
