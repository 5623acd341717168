"""A busy and a silent feed on Spark, through windows to the table: what each rule for silent feeds gives, and what it
costs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kit.queries import stays_idle
from kit.waiting import wait_for
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import upstream
from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import windows_folder
from upstream.core.feedback.report_files import read_reports
from upstream.core.feedback.window_reports import WindowReport
from upstream.operators.aggregates.functions import count

pytestmark = pytest.mark.spark

DDL = "key STRING, ms BIGINT"


class Feeds:
    """Two folders, and a query that counts rows in windows of a second."""

    def __init__(self, spark: SparkSession, home: Path, **options: Any) -> None:
        self.home = home
        self.sent = 0
        self.checkpoint = home / "checkpoint"
        for name in ("busy", "silent"):
            (home / name).mkdir(exist_ok=True)
        self.options = {
            "paths": json.dumps([str(home / "busy"), str(home / "silent")]),
            "key": "key",
            "time": "ms",
            "timeFormat": "epoch_ms",
            "progress": "ordered",
            "confirmations": "1",
            "lastLine": "complete",
            "checkpointLocation": str(self.checkpoint),
            **options,
        }
        self.spark = spark

    def send(self, feed: str, *times_ms: int) -> None:
        """A file of rows, there at once."""
        self.sent += len(times_ms)
        made = self.home / f"{self.sent}.part"
        made.write_text("key,ms\n" + "".join(f"k,{each}\n" for each in times_ms))
        made.rename(self.home / feed / f"{self.sent}.csv")

    def start(self) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("upstream")
            .schema(upstream.with_system_ddl(DDL))
            .options(**self.options)
            .load()
        )
        counted = (
            upstream.UpdateStream(rows, key="key", event_time="ms")
            .window(
                "1 second", checkpoint_location=str(self.checkpoint), output="all", time_format="epoch_ms", shards=2
            )
            .agg(n=count())
        )
        results = upstream.UpdateStream(counted.df, key=("key", "window_id"), event_time="window_end")
        writer = upstream.write_latest(
            results, str(self.home / "table"), checkpointLocation=str(self.checkpoint), buckets=1
        )
        return writer.trigger(processingTime="0 seconds").start()

    def counted(self) -> int:
        """Rows in windows that have closed."""
        if not (self.home / "table" / "_delta_log").is_dir():
            return 0
        return sum(deltalake.DeltaTable(str(self.home / "table")).to_pyarrow_table(columns=["n"])["n"].to_pylist())

    def reports(self) -> list[WindowReport]:
        return read_reports(windows_folder(str(self.checkpoint)), WindowReport)


def taken(query: StreamingQuery) -> int:
    """Rows that the source has taken."""
    last = query.lastProgress
    if last is None:
        return 0
    offset = json.loads(last.sources[0].endOffset or "{}")
    return sum(state["received"] for state in offset.get("progress", {}).values())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_waiting_holds_all_windows_until_the_silent_feed_speaks(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path)
    begin = now_ms() // 1000 * 1000
    feeds.send("silent", begin)
    feeds.send("busy", begin)
    query = feeds.start()
    wait_for(lambda: taken(query) == 2, query.exception)
    for second in range(1, 6):
        feeds.send("busy", begin + second * 1000)
        wait_for(lambda: taken(query) == feeds.sent, query.exception)
    assert feeds.counted() == 0
    (held,) = [each for each in feeds.reports() if each.held]
    assert held.needs == (begin + 1000) * 1000
    blocking = [feed for feed, bound in held.bounds.items() if bound < held.needs]
    assert blocking == [str(tmp_path / "silent")]
    feeds.send("silent", begin + 5000)
    wait_for(lambda: feeds.counted() == 6, query.exception)


def test_after_a_time_the_others_go_on_without_it_and_what_that_made_late_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    feeds = Feeds(spark, tmp_path, idle="advance", idleAfter="1 second")
    begin = now_ms() // 1000 * 1000
    feeds.send("silent", begin)
    feeds.send("busy", begin)
    query = feeds.start()
    wait_for(lambda: taken(query) == 2, query.exception)
    second = 0

    def more() -> bool:
        nonlocal second
        second += 1
        feeds.send("busy", begin + second * 1000)
        wait_for(lambda: taken(query) == feeds.sent, query.exception)
        return feeds.counted() >= 5

    wait_for(more, query.exception)
    feeds.send("silent", begin + 1500)
    wait_for(lambda: taken(query) == feeds.sent, query.exception)
    offset = json.loads(query.lastProgress.sources[0].endOffset)  # type: ignore[union-attr,arg-type]
    state = offset["progress"][str(tmp_path / "silent")]
    assert (state["late"], state["late_idle"]) == (1, 1)


def test_on_demand_timestamps_close_what_is_held_and_then_nothing_runs(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, idle="ets", etsDelay="500 ms")
    begin = now_ms()
    feeds.send("silent", begin)
    feeds.send("busy", begin)
    query = feeds.start()
    wait_for(lambda: taken(query) == 2, query.exception)
    for _ in range(5):
        feeds.send("busy", now_ms())
        wait_for(lambda: taken(query) == feeds.sent, query.exception)
    # All of it, the last window too, though no feed says anything any more.
    wait_for(lambda: feeds.counted() == feeds.sent, query.exception)
    wait_for(lambda: all(each.needs is None for each in feeds.reports()), query.exception)
    assert stays_idle(query, feeds.checkpoint, 1.2), "nothing is held, and batches run"
    # A restart finds what is held where it was left: below the checkpoint.
    feeds.send("busy", now_ms())
    wait_for(lambda: taken(query) == feeds.sent, query.exception)
    query.stop()
    query = feeds.start()
    wait_for(lambda: feeds.counted() == feeds.sent, query.exception)
    wait_for(lambda: query.lastProgress is not None, query.exception)  # Spark gives it after the commit
    silent = json.loads(query.lastProgress.sources[0].endOffset)["progress"][str(tmp_path / "silent")]  # type: ignore[union-attr,arg-type]
    assert silent["received"] == 1
    assert silent["bound"] > silent["own"]


@pytest.mark.parametrize("given_options", [{"progress": "latent"}, {"punctuation": "off"}, {"time": None}])
def test_windows_by_time_over_a_source_that_promises_nothing_are_refused(
    spark: SparkSession, tmp_path: Path, given_options: dict[str, Any]
) -> None:
    """They would never close."""
    feeds = Feeds(spark, tmp_path)
    chosen = {name: value for name, value in {**feeds.options, **given_options}.items() if value is not None}
    if "time" not in chosen:
        chosen = {name: value for name, value in chosen.items() if name not in ("timeFormat", "progress")}
    rows = spark.readStream.format("upstream").schema(upstream.with_system_ddl(DDL)).options(**chosen).load()
    stream = upstream.UpdateStream(rows, key="key", event_time="ms")
    with pytest.raises(
        OptionError,
        match=r"promises nothing.*stamped with their arrival by Watermark\.arrival\(\) \(progress=heartbeat\)",
    ):
        stream.window("1 second", checkpoint_location=str(tmp_path / "c"), time_format="epoch_ms")
    stream.window("10 rows", checkpoint_location=str(tmp_path / "c"))
