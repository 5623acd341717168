"""The Spark processors of joins of newest rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import write_report
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.runs import of_worker
from ..state.store import Store
from .latest_plan import LatestJoinPlan, VersionPlan
from .latest_shard import LatestJoinShard, VersionShard


class VersionProcessor(ShardProcessor):
    """The processor of each shard of one side's keys."""

    state = "upstream_versions_v1"

    def __init__(self, plan: VersionPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames = [bytes(row.frame) for row in rows]
        result, report = VersionShard(shard, self._plan, store, of_worker()).run(frames, batch_id())
        write_report(self._folder, report)
        return result


class LatestJoinProcessor(ShardProcessor):
    """The processor of each shard of the join."""

    state = "upstream_latest_join_v1"

    def __init__(self, plan: LatestJoinPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames: dict[str, list[bytes]] = {"left": [], "right": []}
        for row in rows:
            frames[row.control].append(bytes(row.frame))
        join = LatestJoinShard(shard, self._plan, store, of_worker())
        result, report = join.run(frames["left"], frames["right"], batch_id())
        write_report(self._folder, report)
        return result
