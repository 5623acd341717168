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


def test_a_job_that_named_the_checkpoint_at_each_step_goes_on_without(spark: SparkSession, tmp_path: Path) -> None:
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    add(feed, "0", rows(0, 100))
    named = windows_over_windows(read(spark, feed), checkpoint_location=checkpoint)
    key = {"key": ("k", "window_id"), "event_time": "window_end"}
    before = finish(named, tmp_path, **key)
    assert named.reports == (f"{checkpoint}/upstream-windows/0", f"{checkpoint}/upstream-windows/1")

    add(feed, "1", rows(100, 100))
    stream = windows_over_windows(read(spark, feed))
    assert stream.bound(checkpoint).reports == named.reports
    after = finish(stream, tmp_path, **key)
    got = {(row["k"], row["window_id"], row["total"]) for row in after.iter_rows(named=True)}
    assert got == sums(rows(0, 200), 16_000, 4000)
    assert 0 < before.height < after.height


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
    with pytest.raises(OptionError, match=r"dataframe\(checkpoint\)"):
        _ = stream.df
    with pytest.raises(OptionError, match="not known yet"):
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
