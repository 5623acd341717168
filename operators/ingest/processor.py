"""The Spark processor of an input's shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from ...core.feedback.reports import FeedReports, write_report
from ..runtime.dead_letters import DeadLetterRows
from ..runtime.shard_processor import ShardProcessor, batch_id
from ..state.store import Store
from .plan import IntakePlan
from .shard import IntakeShard


class IntakeProcessor(ShardProcessor):
    """The processor that keeps each feed's watermark in Spark's state.

    Spark stores the state with its batch, and journals the batch's time before the batch runs. So a rerun gives the
    same rows, punctuation, and files. `malformed` takes rows without a key or a readable time. `late` takes copies of
    late rows, which stay in the stream.
    """

    state = "upstream_feeds_v1"

    def __init__(self, plan: IntakePlan, folder: str, malformed: DeadLetterRows, late: DeadLetterRows | None) -> None:
        self._plan = plan
        self._folder = folder
        self._malformed = malformed
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames: list[bytes] = []
        message: dict[str, Any] = {}
        for row in rows:
            if row.frame is None:
                message = json.loads(row.control)
            else:
                frames.append(bytes(row.frame))
        feeds, number = IntakeShard(self._plan, store), batch_id()
        promises = {feed: bound for feed, bound in message.get("promises", {}).items() if feed in feeds.feeds}
        result, reports = feeds.run(frames, number, shard, promises, message.get("now_us", 0))
        if feeds.malformed is not None:
            self._malformed.write(number, shard, feeds.malformed)
        if feeds.late is not None and self._late is not None:
            self._late.write(number, shard, feeds.late)
        write_report(self._folder, FeedReports(shard, reports))
        return result
