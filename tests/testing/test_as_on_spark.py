"""The same rows through Spark and through the tester: the same results, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import upstream as us
from upstream.testing import StreamTester

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, at TIMESTAMP, v DOUBLE"
WATERMARK = us.Watermark.bounded("2 minutes").guarded(confirmations=1)
START = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
# Key, minute, value: of two batches. In the second there are repeats, a row that supersedes another one, and late rows.
BATCHES = [
    [("a", 0, 1), ("b", 1, -2), ("a", 3, 3), ("c", 4, 4), ("a", 3, 5), ("d", 6, 6), ("e", 9, 7), ("b", 9.5, 8)],
    [("a", 3, 9), ("b", 9.5, 1), ("c", 8, 2), ("e", 11, 3), ("f", 13, 4), ("b", 12, 5), ("a", 17, -6), ("c", 16, 7)],
]


def windows(stream: Any, late: Path | None = None) -> Any:
    kept = stream.where("v > 0").select("v", "v * 2 - 1 AS odd")
    return kept.window("5 minutes", "2 minutes", output="all", shards=2, late_location=late).agg(
        n=us.aggregates.count(), odd=us.aggregates.sum_("odd"), mean=us.aggregates.avg("v")
    )


def distinct(stream: Any, late: Path | None = None) -> Any:
    return stream.where("v > 0", on_leave="delete").distinct(late_location=late, shards=2)


def queue(stream: Any, late: Path | None = None) -> Any:
    del late
    return stream.queue(policy="in-place", budget=3, shards=1)  # by its place alone, whatever the clock


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without what differs by clock and zone."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return round(value.astimezone(timezone.utc).timestamp() * 1e6)
        return value

    return [
        str({name: plain(value) for name, value in row.items() if name != "_upstream"})
        + (" deleted" if (row.get("_upstream") or {}).get("deleted") else "")
        for row in rows
    ]


def on_spark(spark: SparkSession, feed: Path, place: Path, steps: Callable[..., Any]) -> tuple[Any, list[list[str]]]:
    stream = us.read(
        spark, feed, key="k", event_time="at", watermark=WATERMARK, schema=SCHEMA, fileFormat="csv",
        maxFilesPerTrigger=1, atEnd="keep",
    )  # fmt: skip
    given: list[list[str]] = []

    def take(df: Any, number: int) -> None:
        del number
        rows = [row.asDict(recursive=True) for row in df.collect()]
        given.append(in_words([row for row in rows if not row["_upstream"]["punctuation"]]))

    checkpoint = place / "checkpoint"
    df = steps(stream, place / "late").dataframe(checkpoint)
    query = df.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    return query.trigger(availableNow=True).start(), given


def dicts(rows: list[tuple[str, float, float]]) -> list[dict[str, Any]]:
    return [{"k": k, "at": START + timedelta(minutes=minute), "v": float(v)} for k, minute, v in rows]


def late_on_spark(place: Path) -> list[str]:
    files = sorted(place.rglob("*.parquet"))
    return [words for file in files for words in in_words(pq.read_table(file).to_pylist())]


def test_windows_distinct_and_queue_give_what_they_give_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    for number, rows in enumerate(BATCHES):
        lines = [f"{row['k']},{row['at']:%Y-%m-%d %H:%M:%S},{row['v']}\n" for row in dicts(rows)]
        (feed / f"{number}.csv").write_text("k,at,v\n" + "".join(lines))
    running = {steps: on_spark(spark, feed, tmp_path / steps.__name__, steps) for steps in (windows, distinct, queue)}
    for steps, (query, given) in running.items():
        query.awaitTermination(500)
        assert query.exception() is None
        tester = StreamTester(steps, SCHEMA, key="k", event_time="at", watermark=WATERMARK)
        expected = [in_words(tester.batch(dicts(rows))) for rows in BATCHES]
        while steps is queue and (more := in_words(tester.batch())):
            expected.append(more)
        found = [each for each in given if each]
        in_order = steps is queue
        assert [each if in_order else sorted(each) for each in found] == [
            each if in_order else sorted(each) for each in expected
        ]
        assert sum(map(len, expected)) >= 8
        late = in_words(tester.late)
        assert sorted(late_on_spark(tmp_path / steps.__name__ / "late")) == sorted(late)
        assert (len(late) > 0) == (steps is not queue)
