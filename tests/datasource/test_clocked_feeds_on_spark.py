"""Synthetic and replayed feeds through Spark: in batches, as streams that end, and killed in between."""

from __future__ import annotations

import json
import time

import pytest
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

SYNTHETIC = {
    "connector": "synthetic",
    "rowsPerSecond": "5000",
    "numFeeds": "2",
    "keys": "50",
    "skew": "0.9",
    "arrivals": "poisson",
    "disorder": "band",
    "disorderWidth": "1s",
    "rows": "20000",
    "key": "key",
    "time": "time",
}


def read(spark, given):
    return spark.read.format("upstream").options(**given).load()


def stream(spark, given, out, checkpoint, **trigger):
    rows = spark.readStream.format("upstream").options(**given).load()
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).outputMode("append")
    return writer.trigger(**trigger).start(str(out))


def wanted(rows):
    return rows.where("not _upstream.punctuation").select("key", "time", "value", "_upstream.source")


def test_a_synthetic_batch_is_the_same_twice_and_in_columns(spark):
    first, second = read(spark, SYNTHETIC), read(spark, {**SYNTHETIC, "startTime": "2024-01-01"})
    assert first.count() == 20_000
    drop = ["key", "value", "_upstream.source"]
    assert first.select(*drop).exceptAll(second.select(*drop)).count() == 0
    facts = second.select(
        F.min("time").cast("string"), F.countDistinct("_upstream.source"), F.countDistinct("_upstream.seq")
    ).first()
    assert facts[0].startswith("2023-12-31 23:59:59")
    assert list(facts[1:]) == [2, 20_000]


def test_a_synthetic_stream_ends_and_has_every_row(spark, tmp_path):
    given = {**SYNTHETIC, "maxRowsPerTrigger": "3000"}
    query = stream(spark, given, tmp_path / "out", tmp_path / "checkpoint", availableNow=True)
    query.awaitTermination()
    assert len([each for each in query.recentProgress if each.numInputRows]) >= 7
    got = spark.read.parquet(str(tmp_path / "out"))
    assert got.where("not _upstream.punctuation").count() == 20_000
    expected = read(spark, SYNTHETIC)
    columns = ["key", "value", "_upstream.source"]
    assert got.where("not _upstream.punctuation").select(*columns).exceptAll(expected.select(*columns)).count() == 0
    late = got.groupBy("_upstream.source").agg(
        F.max(F.when(F.col("_upstream.punctuation"), F.col("time"))).alias("bound")
    )
    assert late.where("bound is not null").count() == 2


def test_a_replay_goes_on_after_a_restart_and_ends(spark, tmp_path):
    recorded = tmp_path / "recorded.jsonl"
    lines = [
        {"key": n % 7, "time": f"2024-01-01T00:00:{n // 100:02d}.{n % 100:02d}Z", "value": n / 8} for n in range(400)
    ]
    recorded.write_text("\n".join(map(json.dumps, lines)) + "\n")
    given = {"connector": "replay", "path": str(recorded), "time": "time", "key": "key", "speed": "4"}
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    query = stream(spark, given, out, checkpoint, processingTime="0 seconds")
    deadline = time.monotonic() + 60
    while not any(each.numInputRows for each in query.recentProgress) and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
    query = stream(spark, given, out, checkpoint, processingTime="0 seconds")
    while spark.read.schema(query_schema(spark, given)).parquet(str(out)).where("value = 399 / 8d").isEmpty():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    query.stop()
    got = spark.read.parquet(str(out)).where("not _upstream.punctuation")
    assert [row[0] for row in got.orderBy("_upstream.seq").select("value").collect()] == [n / 8 for n in range(400)]
    span = got.select(F.max("_upstream.arrival").cast("double") - F.min("_upstream.arrival").cast("double")).first()[0]
    assert span == pytest.approx(3.99 / 4, abs=0.01)


def query_schema(spark, given):
    return spark.readStream.format("upstream").options(**given).load().schema
