"""Row numbers on Spark: one batch of the one shard."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ....core.feedback.reports import write_report
from ...runtime.shard_processor import ShardProcessor, batch_id
from ...state.store import Store
from .stream_numbers import NumberingPlan, NumberingShard


class NumberingProcessor(ShardProcessor):
    """The stateful processor that numbers rows; its shard reports to `folder`."""

    state = "upstream_numbering_v1"

    def __init__(self, plan: NumberingPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        del shard
        result, report = NumberingShard(self._plan, store).run([bytes(row.frame) for row in rows], batch_id())
        write_report(self._folder, report)
        return result
