"""A stream is bound to a checkpoint when it is written: the answers, and where operators report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.queries import run_to_end
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import upstream
from upstream import aggregates as agg
from upstream.conf.errors import OptionError, SchemaError

from .sums import KEYS, add, finish, read, rows, sums

pytestmark = pytest.mark.spark


def windows_over_windows(stream: upstream.UpdateStream, **place: Any) -> upstream.UpdateStream:
    first = stream.where("v >= 0").window("1 second", output="all", shards=2, time_format="epoch_ms", **place)
    second = first.agg(total=agg.sum_("v")).where("total > 0").select((F.col("total") * 1).alias("total"))
    return second.window("4 seconds", output="all", shards=2, **place).agg(total=agg.sum_("total"))


KEY = {"key": ("k", "window_id"), "event_time": "window_end"}


def test_a_job_that_named_the_checkpoint_at_each_step_goes_on_without(spark: SparkSession, tmp_path: Path) -> None:
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    add(feed, "0", rows(0, 100))
    named = windows_over_windows(read(spark, feed), checkpoint_location=checkpoint)
    before = finish(named, tmp_path, **KEY)
    assert named.reports == (f"{checkpoint}/upstream-windows/0", f"{checkpoint}/upstream-windows/1")

    add(feed, "1", rows(100, 100))
    stream = windows_over_windows(read(spark, feed))
    assert stream.bound(checkpoint).reports == named.reports
    after = finish(stream, tmp_path, **KEY)
    got = {(row["k"], row["window_id"], row["total"]) for row in after.iter_rows(named=True)}
    assert got == sums(rows(0, 200), 16_000, 4000)
    assert 0 < before.height < after.height


def test_windows_on_both_sides_of_a_union_report_apart(spark: SparkSession, tmp_path: Path) -> None:
    streams = []
    for name, first in (("one", 0), ("two", 1)):
        add(tmp_path / name, "0", [row for row in rows(0, 100) if row[0] % 2 == first])
        summed = read(spark, tmp_path / name).window("2 seconds", output="all", shards=2, time_format="epoch_ms")
        streams.append(summed.agg(total=agg.sum_("v")))
    both = streams[0].union(streams[1], shards=2)
    checkpoint = tmp_path / "checkpoint"
    assert both.bound(checkpoint).reports == tuple(
        f"{checkpoint}/upstream-{place}" for place in ("windows/0", "windows/1", "reorder/0")
    )
    found = finish(both, tmp_path, **KEY)
    got = {(row["k"], row["window_id"], row["total"]) for row in found.iter_rows(named=True)}
    assert got == sums(rows(0, 100), 8_000, 2000)


def test_a_queue_waits_below_the_checkpoint_of_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    add(feed, "0", rows(0, 100))
    stream = read(spark, feed).queue(policy="in-place", budget=4, shards=2).where("v % 2 = 0", on_leave="delete")
    newest = {k: v for k, _, v in rows(0, 100)}
    assert set(finish(stream, tmp_path).select("k", "v").iter_rows()) == {
        (k, v) for k, v in newest.items() if v % 2 == 0
    }
    assert sorted(each.name for each in (tmp_path / "checkpoint").glob("upstream-*")) == [
        "upstream-plan",
        "upstream-queue",
        "upstream-sink",
    ]


def test_the_default_checkpoint_is_bound_too(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    add(feed, "0", rows(0, 20))
    stream = read(spark, feed).queue(policy="append", shards=2)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        run_to_end(upstream.write_latest(stream, tmp_path / "table"))
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert len(list((tmp_path / "checkpoints").glob("table-*/upstream-queue/shard-*.json"))) == 2
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == KEYS


def test_without_a_checkpoint_it_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "feed", "0", rows(0, 5))
    stream = read(spark, tmp_path / "feed").queue(policy="append", shards=2).select("v")
    assert stream.schema.names == ["k", "ms", "v", "_upstream"]
    with pytest.raises(OptionError, match=r"keeps state below its query's checkpoint.*dataframe\(checkpoint\)"):
        _ = stream.df
    with pytest.raises(OptionError, match="not known yet: queue, policy append"):
        upstream.write_latest(stream, tmp_path / "table")
    assert stream.dataframe(tmp_path / "checkpoint").columns == stream.schema.names
    with pytest.raises(OptionError, match="checkpoint_location=3"):
        stream.ordered(checkpoint_location=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SchemaError, match="no column w"):
        upstream.UpdateStream(stream.dataframe(tmp_path / "checkpoint"), key="w")


def test_a_column_of_a_streams_dataframe_is_found_in_later_steps(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "feed", "0", rows(0, 20))
    doubled = read(spark, tmp_path / "feed").select((F.col("v") * 2).alias("twice"))
    assert doubled.where(doubled.df["twice"] > 10).schema.names == ["k", "ms", "twice", "_upstream"]
    waiting = doubled.queue(policy="append", shards=2)
    checkpoint = tmp_path / "checkpoint"
    large = waiting.bound(checkpoint).df["twice"] > 10
    assert waiting.dataframe(checkpoint).where(large).columns == waiting.schema.names
    moved = read(spark, tmp_path / "feed").where("v > 1").queue(policy="append", shards=2)
    large = moved.dataframe(checkpoint)["v"] > 10
    assert moved.dataframe(checkpoint).where(large).columns == moved.schema.names


def test_what_a_stream_does_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path / "feed", "0", rows(0, 5))
    stream = windows_over_windows(read(spark, tmp_path / "feed"))
    shown = stream.explain(checkpoint=tmp_path / "checkpoint")
    assert shown.splitlines()[0].startswith("window, window SlidingWindows(")
    assert f"└─ read files {tmp_path / 'feed'}" in shown
    assert "where v >= 0" in shown
    assert f"reports to {tmp_path / 'checkpoint'}/upstream-windows/1" in shown
    assert "reports to" not in stream.explain()
