"""A busy feed and a silent one on Spark: on-demand timestamps (idle=ets) let go of what waits for the silent one."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.queries import stays_idle
from kit.tables import read_rows
from kit.waiting import wait_for
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import upstream as us
from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import WindowReport, read_reports

pytestmark = pytest.mark.spark

DDL = "key STRING, ms BIGINT, v BIGINT"
OPTIONS = {"watermark": "ordered", "confirmations": 1, "lastLine": "complete"}


class Feeds:
    """Two folders of files, and a query over them."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark, self.home, self.checkpoint, self.sent = spark, home, home / "checkpoint", 0
        for name in ("busy", "silent"):
            (home / name).mkdir()

    def send(self, feed: str, *times_ms: int) -> None:
        """A file of rows, there at once."""
        lines = [f"k,{each},{self.sent + at}\n" for at, each in enumerate(times_ms)]
        self.sent += len(times_ms)
        made = self.home / f"{self.sent}.part"
        made.write_text("key,ms,v\n" + "".join(lines))
        made.rename(self.home / feed / f"{self.sent}.csv")

    def source(self, delay: str, *feeds: str) -> us.UpdateStream:
        paths = json.dumps([str(self.home / each) for each in feeds])
        given = {"paths": paths, "idle": "ets", "etsDelay": delay, "checkpointLocation": str(self.checkpoint)}
        reader = self.spark.readStream.format("upstream").schema(us.with_system_ddl(DDL))
        reader = reader.options(key="key", eventTime="ms", timeFormat="epoch_ms", fileFormat="csv", **OPTIONS, **given)
        return us.UpdateStream(reader.load(), key="key", event_time="ms")

    def start(self, stream: us.UpdateStream, *key: str) -> StreamingQuery:
        writer = stream.write(self.home / "table", checkpoint=self.checkpoint, key=key, buckets=1)
        return writer.trigger(processingTime="0 seconds").start()

    def results(self, *columns: str) -> list[tuple[Any, ...]]:
        table = self.home / "table"
        return read_rows(table, *columns) if DeltaTable.is_deltatable(str(table)) else []

    def of_silent(self, query: StreamingQuery, source: int) -> dict[str, Any]:
        wait_for(lambda: query.lastProgress is not None, query.exception)  # Spark gives it after the commit
        offset = json.loads(query.lastProgress.sources[source].endOffset)  # type: ignore[union-attr,arg-type]
        return offset["progress"][str(self.home / "silent")]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def taken(query: StreamingQuery) -> int:
    """Rows that the source has taken."""
    last = query.lastProgress
    offset = json.loads(last.sources[0].endOffset or "{}") if last is not None else {}
    return sum(state["received"] for state in offset.get("progress", {}).values())


def check_it_was_promised_for(silent: dict[str, Any]) -> None:
    assert silent["received"] == 1
    assert silent["bound"] > silent["own"], "the silent feed's own row is not what let go"


def test_windows_that_are_held_close_and_then_nothing_runs(spark, tmp_path):
    feeds = Feeds(spark, tmp_path)

    def start() -> StreamingQuery:
        rows = feeds.source("500 ms", "busy", "silent")
        windows = rows.window("1 second", shards=2, emit="all").agg(n=us.count())
        return feeds.start(windows, "key", "window_id")

    def counted() -> int:
        return sum(n for (n,) in feeds.results("n"))

    feeds.send("silent", now_ms())
    query = start()
    for _ in range(3):
        feeds.send("busy", now_ms())
        wait_for(lambda: taken(query) == feeds.sent, query.exception)
    # All of it, the last window too, though no feed says anything any more.
    wait_for(lambda: counted() == feeds.sent, query.exception)
    reports = operator_folder(str(feeds.checkpoint), "windows")
    wait_for(lambda: all(each.needs is None for each in read_reports(reports, WindowReport)), query.exception)
    assert stays_idle(query, feeds.checkpoint, 1.2), "nothing is held, and batches run"
    # A restart finds what is held where it was left: below the checkpoint.
    feeds.send("busy", now_ms())
    wait_for(lambda: taken(query) == feeds.sent, query.exception)
    query.stop()
    query = start()
    wait_for(lambda: counted() == feeds.sent, query.exception)
    check_it_was_promised_for(feeds.of_silent(query, 0))


@pytest.mark.parametrize("options", [{"watermark": "none"}, {"punctuation": "off"}, {"eventTime": None}])
def test_windows_by_time_over_a_source_that_promises_nothing_are_refused(spark, tmp_path, options):
    """They would never close."""
    given = {"path": str(tmp_path), "key": "key", "eventTime": "ms", "timeFormat": "epoch_ms", **options}
    if given["eventTime"] is None:
        given = {name: given[name] for name in ("path", "key")}
    rows: DataFrame = spark.readStream.format("upstream").schema(us.with_system_ddl(DDL)).options(**given).load()
    stream = us.UpdateStream(rows, key="key", event_time="ms")
    with pytest.raises(OptionError, match=r"Watermark\.arrival"):
        stream.window("1 second")
    stream.window("10 rows")
