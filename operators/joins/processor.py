"""The Spark processors of joins by time and of joins of newest rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import write_report
from ..runtime.dead_letters import DeadLetterRows
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.runs import of_worker
from ..state.store import Store
from .as_of_shard import AsOfShard, EarlyAsOfShard
from .latest_plan import LatestJoinPlan, VersionPlan
from .latest_shard import LatestJoinShard, VersionShard
from .plan import AsOfPlan, JoinPlan
from .release.choice import Mode
from .shard import JoinShard


def join_shard(number: int, plan: JoinPlan | AsOfPlan, store: Store) -> JoinShard | AsOfShard:
    """Return a shard of a join, of either kind."""
    if isinstance(plan, AsOfPlan):
        return EarlyAsOfShard(number, plan, store) if plan.early else AsOfShard(number, plan, store)
    return JoinShard(number, plan, store)


class JoinProcessor(ShardProcessor):
    """The processor of each shard; `late` takes results that are too late for the order of time.

    Spark stores a batch's state with the batch. So kept rows survive a crash, and a rerun gives the same rows.
    """

    state = "upstream_join_v1"

    def __init__(self, plan: JoinPlan | AsOfPlan, folder: str, late: DeadLetterRows | None = None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames: dict[str, list[bytes]] = {"left": [], "right": []}
        mode: Mode | None = None
        for row in rows:
            if row.frame is None:
                mode = row.control
            else:
                frames[row.control].append(bytes(row.frame))
        join = join_shard(shard, self._plan, store)
        if isinstance(join, AsOfShard):
            result, report = join.run(frames["left"], frames["right"], batch_id())
        else:
            result, report = join.run(frames["left"], frames["right"], batch_id(), mode)
            if join.late is not None and self._late is not None:
                self._late.write(report.batch_id, shard, join.late)
        write_report(self._folder, report)
        return result


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
