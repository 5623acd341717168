"""The source as users reach it: plain sessions, every trigger, batch, restarts, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.feeds import write_csv
from kit.places import RECORDED, needs_recorded
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import upstream

pytestmark = pytest.mark.spark


def collect(frame: DataFrame, checkpoint: Path, **trigger: Any) -> list[dict[str, Any]]:
    """All rows that a stream delivers until it has nothing more, in the order of its batches."""
    rows: list[dict[str, Any]] = []
    query = (
        frame.writeStream.foreachBatch(
            lambda batch, _: rows.extend(row.asDict(recursive=True) for row in batch.collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    if trigger:
        query.processAllAvailable()
        query.stop()
    else:
        query.awaitTermination()
    return rows


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "0 seconds"}, {"processingTime": "1 second"}])
def test_every_trigger_delivers_every_row_once(spark: SparkSession, tmp_path: Path, trigger: dict[str, str]) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    for number in range(3):
        write_csv(feed / f"{number}.csv", "k,ms,v", [(f"k{i % 5}", number * 100 + i, i) for i in range(50)])
    frame = (
        spark.readStream.format("upstream")
        .options(key="k", time="ms", timeFormat="epoch_ms", maxRowsPerTrigger="20", progressDelay="10 ms")
        .load(str(feed))
    )
    rows = collect(frame, tmp_path / "checkpoint", **trigger)
    data = [row for row in rows if not row["_upstream"]["punctuation"]]
    assert sorted((row["k"], row["ms"], row["v"]) for row in data) == sorted(
        (f"k{i % 5}", number * 100 + i, i) for number in range(3) for i in range(50)
    )
    bounds = [row["ms"] for row in rows if row["_upstream"]["punctuation"]]
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == 239
    assert len({row["_upstream"]["seq"] for row in data}) == 150
    # A restart has nothing left to do, and a grown feed only the growth.
    assert collect(frame, tmp_path / "checkpoint") == []
    write_csv(feed / "3.csv", "k,ms,v", [("z", 1000, 1)])
    more = collect(frame, tmp_path / "checkpoint")
    assert [row["k"] for row in more if not row["_upstream"]["punctuation"]] == ["z"]


def test_batch_reads_the_same_rows_in_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "k,ms,v", [(f"k{i % 7}", i, i) for i in range(200_000)])
    reader = spark.read.format("upstream").options(
        key="k", time="ms", timeFormat="epoch_ms", splitBytes="200 KB", minPartitions="4"
    )
    frame = reader.load(str(tmp_path / "a.csv"))
    assert frame.count() == 200_000
    assert frame.where("_upstream.punctuation").count() == 0
    newest = reader.option("coalesce", "true").load(str(tmp_path / "a.csv"))
    assert newest.rdd.getNumPartitions() > 1
    assert newest.selectExpr("sum(_upstream.covered)").first() == (200_000,)
    assert newest.count() == 7 * newest.rdd.getNumPartitions()
    assert newest.groupBy("k").max("v").where("`max(v)` < 199993").count() == 0


def test_the_same_journal_gives_the_same_rows_when_a_batch_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    feed.mkdir()
    write_csv(feed / "a.csv", "k,ms,v", [(f"k{i % 5}", i, i) for i in range(100)])
    frame = (
        spark.readStream.format("upstream")
        .options(key="k", time="ms", timeFormat="epoch_ms", coalesce="true", progressDelay="5 ms")
        .load(str(feed))
    )
    first = collect(frame, checkpoint)
    # As if the process had died after the batch ran and before Spark noted it.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    write_csv(feed / "b.csv", "k,ms,v", [("later", 1000, 1)])
    again = collect(frame, checkpoint)
    assert [row for row in again if row["k"] != "later"][: len(first)] == first


def test_the_inferred_schema_stays_for_the_life_of_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    feed.mkdir()
    write_csv(feed / "a.csv", "k,ms,v", [("x", 1, 1)])

    def read(**more: str) -> DataFrame:
        return spark.readStream.format("upstream").options(**more).load(str(feed))

    collect(read(checkpointLocation=str(checkpoint)), checkpoint)
    (feed / "a.csv").unlink()
    write_csv(feed / "b.csv", "k,ms,v", [("y", "2.5", 1)])
    assert dict(read(checkpointLocation=str(checkpoint)).dtypes)["ms"] == "bigint"
    assert dict(read().dtypes)["ms"] == "double"
    with pytest.raises(StreamingQueryException, match=r"written for the columns .*ms int64.*give the recorded columns"):
        collect(read(), checkpoint)


def test_malformed_rows_are_put_aside_and_the_query_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "a.csv").write_text("k,ms,v\nx,1,1\nx,notime,2\n,3,3\nx,4\ny,5,5\n")
    frame = (
        spark.readStream.format("upstream")
        .options(key="k", time="ms", timeFormat="epoch_ms", schema="k STRING, ms BIGINT, v INT", nullValue="")
        .options(quarantineLocation=str(tmp_path / "aside"), punctuation="off")
        .load(str(feed))
    )
    rows = collect(frame, tmp_path / "checkpoint")
    assert [(row["k"], row["ms"], row["v"]) for row in rows] == [("x", 1, 1), ("y", 5, 5)]
    aside = [
        json.loads(line) for path in (tmp_path / "aside").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert len(aside) == 3
    assert {row["line"] for row in aside} >= {3, 5}
    failing = (
        spark.readStream.format("upstream")
        .options(key="k", onMalformed="fail", schema="k STRING, ms BIGINT, v INT")
        .load(str(feed))
    )
    with pytest.raises(StreamingQueryException, match=r"malformed row at .*a\.csv.*line 3.*onMalformed=quarantine"):
        collect(failing, tmp_path / "checkpoint2")


def test_wrong_options_are_one_error_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", "k,ms,v", [("x", 1, 1)])
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("upstream").options(maxRowPerTrigger="5", coalesce="maybe", speed="3").load(
            str(tmp_path / "a.csv")
        )
    message = str(caught.value)
    for part in (
        "did you mean 'maxRowsPerTrigger'",
        "coalesce='maybe' is not true or false",
        "belongs to connector=replay",
    ):
        assert part in message
    with pytest.raises(AnalysisException, match="coalesce=true without `key`"):
        spark.readStream.format("upstream").options(coalesce="true").load(str(tmp_path / "a.csv"))
    with pytest.raises(AnalysisException, match=r"the key column 'q' is not among the columns.*k, ms, v"):
        spark.readStream.format("upstream").options(key="q").load(str(tmp_path / "a.csv"))
    with pytest.raises(AnalysisException, match=r"'ms' holds numbers.*timeFormat=epoch_ms"):
        spark.readStream.format("upstream").options(time="ms").load(str(tmp_path / "a.csv"))


def test_a_schema_without_the_system_column_is_reported_with_how_to_give_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_csv(tmp_path / "a.csv", "k,ms,v", [("x", 1, 1)])
    reader = spark.read.format("upstream")
    with pytest.raises(Exception, match="with_system_ddl"):
        reader.schema("k STRING, ms BIGINT, v INT").load(str(tmp_path / "a.csv")).count()
    given = reader.schema(upstream.with_system_ddl("k STRING, ms BIGINT, v INT")).load(str(tmp_path / "a.csv"))
    assert given.drop("_upstream").first() == ("x", 1, 1)


def test_backlog_is_in_the_progress_report(spark: SparkSession, tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    write_csv(feed / "a.csv", "k,ms,v", [("x", i, i) for i in range(1000)])
    frame = spark.readStream.format("upstream").option("maxRowsPerTrigger", "100").load(str(feed))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reports = [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]
    waiting = [report["latestOffset"]["backlog"]["bytes"] for report in reports]
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] > 0
    assert [report["numInputRows"] for report in reports] == [100] * 10


@needs_recorded
@pytest.mark.long
def test_nothing_of_the_recorded_ships_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    frame = (
        spark.readStream.format("upstream")
        .options(key="MMSI", time="BaseDateTime", progressDelay="906 seconds")
        .load(str(RECORDED / "ais.csv.gz"))
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("ships")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ships = spark.table("ships")
    assert ships.where("NOT _upstream.punctuation").count() == 99_999
    end = json.loads(query.recentProgress[0].json)["sources"][0]["endOffset"]
    (progress,) = end["progress"].values()
    assert progress["suspects"] == 352
    bound = ships.where("_upstream.punctuation").selectExpr("max(BaseDateTime)").first()
    assert bound is not None
    assert bound[0].isoformat() < "2022-01-03T00:30:00"
