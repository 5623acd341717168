"""A query of files to a table as Spark runs it, without Spark: the journal, the source's reader, the sink's writer."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from kit.sink import COLUMNS, Sink
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.datasource.spark_reader import UpstreamStreamReader
from upstream.workbench.key_answer import KeyAnswer
from upstream.workbench.why import explain_key


class Pipeline:
    """One query; its table is `sink.path`, and its checkpoint lies beside it."""

    def __init__(
        self, folder: Path, columns: pa.Schema = COLUMNS, *, sink: dict[str, str] | None = None, **source: str
    ):
        given = {"key": "k", "eventTime": "t", "buckets": "4", **(sink or {})}
        self.sink = Sink(folder, columns, given)
        self.feed = folder / "in"
        self.feed.mkdir()
        self.given = {
            "connector": "files", "path": str(self.feed), "fileFormat": "json", "key": "k", "eventTime": "t",
            "timeFormat": "epoch_us", "checkpointLocation": str(self.sink.checkpoint), **source,
        }  # fmt: skip
        self.schema = from_arrow_schema(columns.append(pa.field(SYSTEM, SYSTEM_TYPE)))
        self.offsets: list[dict[str, Any]] = []
        for name in ("offsets", "commits"):
            (self.sink.checkpoint / name).mkdir()
        self.start()

    def start(self) -> None:
        self.reader = UpstreamStreamReader(self.given, self.schema)

    def lines(self, name: str, *rows: dict[str, Any] | str) -> None:
        """Rows arrive at the end of a file."""
        with open(self.feed / name, "a", encoding="utf-8") as file:
            file.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)

    def plan(self, rows: int | None = None) -> int:
        """Journal the next batch, and return its number."""
        start = self.offsets[-1] if self.offsets else self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadAllAvailable() if rows is None else ReadMaxRows(rows))
        assert end != start, "there is nothing to read"
        self.offsets.append(json.loads(json.dumps(end)))
        lines = ["v1", json.dumps({"batchTimestampMs": 0}), json.dumps(end)]
        (self.sink.checkpoint / "offsets" / str(len(self.offsets) - 1)).write_text("\n".join(lines))
        return len(self.offsets) - 1

    def run(self, number: int) -> None:
        """Read a journaled batch, and commit it."""
        start = self.offsets[number - 1] if number else self.reader.initialOffset()
        parts = self.reader.partitions(start, self.offsets[number])
        tasks: Sequence[list[pa.RecordBatch]] = [list(self.reader.read(part)) for part in parts]
        self.sink.write(number, *tasks)
        (self.sink.checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def batch(self, rows: int | None = None) -> int:
        number = self.plan(rows)
        self.run(number)
        return number


T = 1_700_000_000_000_000


def row(key: int, time: int, value: str = "x", **more: Any) -> dict[str, Any]:
    return {"k": key, "t": T + time, "v": value, **more}


def why(pipeline: Pipeline, key: int, **more: Any) -> KeyAnswer:
    return explain_key(str(pipeline.sink.path), [f"k={key}"], seconds=math.inf, **more)


def two_batches(folder: Path) -> Pipeline:
    """In the second one there are three updates of key 1."""
    pipeline = Pipeline(folder)
    pipeline.lines("a.jsonl", row(1, 10, "first"), "", row(2, 10))
    pipeline.batch()
    pipeline.lines("a.jsonl", row(1, 20), row(3, 20))
    pipeline.lines("b.jsonl", row(1, 40, "newest"), row(1, 30))
    pipeline.batch()
    return pipeline
