"""A stream is bound to a checkpoint in stages: it goes on with those it had, and another job is refused by name."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from kit.queries import run_to_end
from pyspark.sql import functions as F

import upstream
from upstream import aggregates as agg
from upstream.conf.errors import CheckpointError, OptionError

from .sums import KEYS, add, finish, read, rows, sums

pytestmark = pytest.mark.spark


def counted(stream: upstream.UpdateStream, **more: Any) -> upstream.UpdateStream:
    """Two windows with a filter between them."""
    first = stream.where("v >= 0").window("1 second", shards=2, emit="all")
    second = first.agg(total=agg.sum("v")).where("total IS NOT NULL AND total >= 0")
    return second.window("4 seconds", shards=2, emit="all").agg(total=agg.sum("total"), **more)


def written(stream: upstream.UpdateStream, place: Path, **more: Any) -> pl.DataFrame:
    return finish(stream, place, key=("k", "window_id"), event_time="window_end", **more)


def answers(found: pl.DataFrame) -> set[tuple[int, int, int]]:
    return {(row["k"], row["window_id"], row["total"]) for row in found.iter_rows(named=True)}


def recorded(checkpoint: Path) -> list[int]:
    return [len(stage) for stage in json.loads((checkpoint / "upstream-plan/operators.json").read_text())["stages"]]


def test_windows_over_windows_in_one_stage(spark, tmp_path):
    feed, first, second = tmp_path / "feed", rows(0, 300), rows(300, 200)
    add(feed, "0", first)
    stream = counted(read(spark, feed))
    text = stream.explain()
    for words in ("in one stage", "runs in the worker of the window", "where the rows are read", f"files {feed}"):
        assert words in text
    assert answers(written(stream, tmp_path)) == sums(first, 29_000, 4_000)
    assert recorded(tmp_path / "checkpoint") == [2]
    state = [each.name for each in (tmp_path / "checkpoint/state").iterdir() if each.name.isdigit()]
    assert state == ["0"], "one stateful operator of Spark's"
    add(feed, "1", second)
    assert answers(written(counted(read(spark, feed)), tmp_path)) == sums([*first, *second], 49_000, 4_000)


def test_operators_that_were_apart_stay_apart(spark, tmp_path):
    """What Spark computes between them parts them; without it they could share a stage, and the state is in two."""
    feed, first, second = tmp_path / "feed", rows(0, 300), rows(300, 200)
    add(feed, "0", first)

    def parted(condition: str) -> upstream.UpdateStream:
        inner = read(spark, feed).window("1 second", shards=2, emit="all")
        inner = inner.agg(total=agg.sum("v")).where(condition)
        return inner.window("4 seconds", shards=2, emit="all").agg(total=agg.sum("total"))

    written(parted("total + 0 >= 0"), tmp_path)
    assert recorded(tmp_path / "checkpoint") == [1, 1]
    add(feed, "1", second)
    changed = parted("total >= 0")
    assert "in one stage" in changed.explain()
    assert "in one stage" not in changed.explain(checkpoint=tmp_path / "checkpoint")
    assert answers(written(changed, tmp_path)) == sums([*first, *second], 49_000, 4_000)
    assert recorded(tmp_path / "checkpoint") == [1, 1]


def test_another_job_is_refused_before_spark_starts(spark, tmp_path):
    feed = tmp_path / "feed"
    add(feed, "0", rows(0, 100))
    written(counted(read(spark, feed)), tmp_path)
    kept = (tmp_path / "checkpoint/upstream-plan/operators.json").read_bytes()
    alone = read(spark, feed).window("1 second", shards=2, emit="all")
    with pytest.raises(CheckpointError, match="upstream-windows/1"):
        written(alone.agg(total=agg.sum("v")), tmp_path)
    with pytest.raises(CheckpointError, match="upstream-reorder/0"):
        written(counted(read(spark, feed).distinct("k", "v")), tmp_path)
    assert (tmp_path / "checkpoint/upstream-plan/operators.json").read_bytes() == kept


def test_aggregates_that_the_state_does_not_do_for_are_refused_before_spark_starts(spark, tmp_path):
    feed = tmp_path / "feed"
    add(feed, "0", rows(0, 100))

    def eager(**aggregates: Any) -> upstream.UpdateStream:
        windows = read(spark, feed).window("1 second", shards=2, emit="eager")
        return windows.agg(total=agg.sum("v"), **aggregates)

    written(eager(), tmp_path)
    with pytest.raises(CheckpointError, match="other aggregates"):
        eager(least=agg.min("v")).bound(tmp_path / "checkpoint")


def test_functions_in_a_stage_have_sparks_broadcasts_and_accumulators(spark, tmp_path):
    feed, given = tmp_path / "feed", rows(0, 300)
    add(feed, "0", given)
    factor, seen = spark.sparkContext.broadcast(3), spark.sparkContext.accumulator(0)

    def tripled(batch: pa.RecordBatch) -> pa.Table:
        seen.add(batch.num_rows)
        return pa.table({"tripled": pc.multiply(batch.column("total"), factor.value)})

    first = read(spark, feed).window("1 second", shards=2, emit="all")
    mapped = first.agg(total=agg.sum("v")).map(tripled, "tripled BIGINT")
    stream = mapped.window("4 seconds", shards=2, emit="all").agg(total=agg.sum("tripled"))
    assert "in one stage with the window before it" in stream.explain()
    expected = {(key, window, 3 * total) for key, window, total in sums(given, 29_000, 4_000)}
    assert answers(written(stream, tmp_path)) == expected
    assert seen.value == len(sums(given, 29_000, 1_000))


def test_the_default_checkpoint_is_bound_too(spark, tmp_path):
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


def test_without_a_checkpoint_it_is_asked_for(spark, tmp_path):
    add(tmp_path / "feed", "0", rows(0, 5))
    stream = read(spark, tmp_path / "feed").queue(policy="append", shards=2).select("v")
    assert stream.schema.names == ["k", "ms", "v", "_upstream"]
    with pytest.raises(OptionError, match=r"dataframe\(checkpoint\)"):
        _ = stream.df
    with pytest.raises(OptionError, match="not known yet"):
        upstream.write_latest(stream, tmp_path / "table")
    assert stream.dataframe(tmp_path / "checkpoint").columns == stream.schema.names


def test_a_column_of_a_streams_dataframe_is_found_in_later_steps(spark, tmp_path):
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
