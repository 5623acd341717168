"""What the tests of this connector share: a follower without Spark, and tables that the sink's own classes write."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kit.journal import through_json
from kit.sink import NOW_US

from upstream.datasource.connectors.contract import Limit
from upstream.datasource.planner import BatchPlanner, Offset
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.datasource.schema import leaving_schema, shape_of, with_columns
from upstream.datasource.task import Reading
from upstream.sink.maintenance import compact
from upstream.sink.merge import engines
from upstream.sink.merge import engines as folding


class Follower:
    """Reads a latest table as Spark would: offsets go through JSON, and a new process is one call away."""

    def __init__(self, table: Path, **options: str) -> None:
        given = {"connector": "latest", "path": str(table), "timeFormat": "epoch_us", **options}
        self.given = {name: value for name, value in given.items() if value}
        self.offset: Offset = BatchPlanner.initial()
        self.now_us = NOW_US + 1_000_000
        self.restart()

    def restart(self) -> None:
        """A new process: nothing but the offset is known."""
        common, own = parse_source_options(self.given)
        schema = leaving_schema(CONNECTORS["latest"].make(own, common).schema(), common)
        connector = CONNECTORS["latest"].make(own, common)
        shape = shape_of(schema, common)
        common = with_columns(common, shape)
        connector.fix_schema(shape.rows)
        self.options, self.schema = common, schema
        self.reading = Reading(common, shape, connector, "unused")
        self.limit = connector.limit(common.limit())
        self.planner = BatchPlanner(connector, common, shape, clock=lambda: self.now_us, new_id=lambda: "follower")

    def plan(self, limit: Limit | None = None) -> Offset:
        """The end of the next batch."""
        return through_json(self.planner.plan(self.offset, self.limit if limit is None else limit))

    def read(self, end: Offset) -> list[list[pa.RecordBatch]]:
        """What each task of the batch that ends there gives."""
        return [list(self.reading.read(task)) for task in self.planner.tasks(self.offset, end)]

    def take(self) -> list[list[pa.RecordBatch]] | None:
        """The next batch, committed; None if nothing has come."""
        end = self.plan()
        if end == self.offset:
            return None
        batches = self.read(end)
        self.planner.commit(end)
        self.offset = end
        return batches

    def rows(self) -> list[dict[str, Any]]:
        """All rows until there is nothing more."""
        found: list[dict[str, Any]] = []
        while (tasks := self.take()) is not None:
            found += [row for task in tasks for batch in task for row in batch.to_pylist()]
        return found


def some(sink: Any, batch_id: int, *rows: tuple[Any, ...]) -> None:
    sink.batch(batch_id, [sink.rows(list(rows), seq=100 * batch_id)])


def gone(sink: Any, rows: list[tuple[Any, ...]], seq: int) -> pa.RecordBatch:
    return sink.rows(rows, seq=seq, deleted=np.ones(len(rows), dtype=np.bool_))


class Batches:
    """Batches of a table. Rows are a key, a time, and whether they are a deletion; there are so many values."""

    def __init__(self, sink: Any, values: int) -> None:
        self.sink, self.values = sink, values
        self.batch_id = self.seq = 0

    def batch(self, rows: list[tuple[int, int, bool]], tasks: int) -> Any:
        parts = [range(task, len(rows), tasks) for task in range(tasks)]
        summary = self.sink.batch(self.batch_id, *([self._rows(rows, part)] for part in parts if part))
        self.batch_id, self.seq = self.batch_id + 1, self.seq + len(rows)
        return summary

    def _rows(self, rows: list[tuple[int, int, bool]], part: range) -> Any:
        numbers = [self.seq + at for at in part]
        values = [
            (key, time, None if gone else str(number % self.values))
            for number, (key, time, gone) in zip(numbers, (rows[at] for at in part), strict=True)
        ]
        return self.sink.rows(values, seq=numbers, deleted=np.array([rows[at][2] for at in part]))


def options_of(way: str, monkeypatch: pytest.MonkeyPatch, folder: str) -> dict[str, str]:
    """Have the sink write in one of its ways however few rows there are; the options for that."""
    monkeypatch.setattr(engines, "_WORTH_KEEPING", 1 if way == "beside" else 10_000)
    # Else the few rows here would be put together with each batch, and none of them marked as dead.
    monkeypatch.setattr(folding, "_FREE_ROWS", 0)
    monkeypatch.setattr(folding, "_FREE_SHARE", 2)
    # As if buckets were large: then they are rewritten after commits.
    monkeypatch.setattr(compact, "WORTH", 0 if way == "worn" else 10_000)
    monkeypatch.setattr(compact, "FILE", 1)
    return {"engine": "vectors", "indexLocation": f"{folder}/index"} if way in ("vectors", "worn") else {}
