"""A query without Spark whose batches are planned: its source, its queue, Spark's journal, and its table."""

import json
from pathlib import Path

import pyarrow as pa

from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.rows.key import Key
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.operators.queue.tick_planner import QueuePlanner

from .memory_connector import MemoryConnector
from .sink import COLUMNS, Sink


class PlannedQuery:
    """Each batch is planned and journaled as by Spark, and puts a row of its own into the table."""

    def __init__(self, folder: Path, rows: int = 100) -> None:
        self.sink = Sink(folder)
        checkpoint = str(self.sink.checkpoint)
        options = SourceOptions(
            key=Key(("k",)), time="t", time_format="epoch_ms", checkpoint_location=checkpoint, max_rows_per_trigger=40
        )
        feed = MemoryConnector({"f": pa.table([range(rows), range(rows), ["a"] * rows], schema=COLUMNS)})
        shape = shape_of(leaving_schema(COLUMNS, options), options)
        self._source = BatchPlanner(feed, options, shape, clock=lambda: 1, new_id=lambda: "s1")
        self._queue = QueuePlanner.of((0,), {"feedback": queue_folder(checkpoint), "budget": "500"})
        self._ends = [BatchPlanner.initial(), self._queue.initial()]
        self.batches = 0

    def batch(self) -> None:
        """Plan, journal and commit the next batch."""
        source, tick = self._ends
        self._ends = [self._source.plan(source, Limit(rows=40)), self._queue.plan(tick, 2)]
        offsets = self.sink.checkpoint / "offsets"
        offsets.mkdir(exist_ok=True)
        (offsets / str(self.batches)).write_text("\n".join(["v1", "{}", *map(json.dumps, self._ends)]))
        self.sink.batch(self.batches, [self.sink.rows([(self.batches, self.batches, "a")], seq=self.batches)])
        self.batches += 1
