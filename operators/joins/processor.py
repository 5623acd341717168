"""Joins on Spark: one shard's batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.report_files import write_report
from ..runtime.rows_aside import RowsAside
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..runtime.store import Store
from .as_of_plan import AsOfPlan
from .as_of_shard import AsOfShard
from .early_as_of_shard import EarlyAsOfShard
from .plan import JoinPlan
from .release.choice import Mode
from .shard import JoinShard

__all__ = ["JoinProcessor", "join_shard"]


def join_shard(number: int, plan: JoinPlan | AsOfPlan, store: Store) -> JoinShard | AsOfShard:
    """Return a shard of a join, of either kind."""
    if isinstance(plan, AsOfPlan):
        return EarlyAsOfShard(number, plan, store) if plan.early else AsOfShard(number, plan, store)
    return JoinShard(number, plan, store)


class JoinProcessor(ShardProcessor):
    """Runs each shard.

    Parameters
    ----------
    plan : JoinPlan or AsOfPlan
    folder : str
        Where the shards leave their reports.
    late : RowsAside or None
        Where results go that are too late for the order of time.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so rows that are kept survive any crash, and a batch
    that is run again gives the same rows.
    """

    state = "upstream_join_v1"

    def __init__(self, plan: JoinPlan | AsOfPlan, folder: str, late: RowsAside | None = None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.runtime.shard_processor.ShardProcessor`."""
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
