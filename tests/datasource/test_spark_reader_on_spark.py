"""The source as users reach it: each trigger, batch, restarts; and feeds that come by a clock."""

import json
from pathlib import Path
from typing import Any

import pytest
from kit.feeds import write_csv
from kit.queries import run_to_end
from kit.waiting import wait_for
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from upstream.conf.errors import OptionError
from upstream.datasource.latest_stream import latest


def collect(frame: DataFrame, checkpoint: Path, **trigger: Any) -> list[dict[str, Any]]:
    """All rows that a stream delivers until it has nothing more, in the order of its batches."""
    rows: list[dict[str, Any]] = []
    writer = frame.writeStream.foreachBatch(
        lambda batch, _: rows.extend(row.asDict(recursive=True) for row in batch.collect())
    ).option("checkpointLocation", str(checkpoint))
    if not trigger:
        run_to_end(writer)
        return rows
    query = writer.trigger(**trigger).start()
    query.processAllAvailable()
    query.stop()
    return rows


@pytest.mark.parametrize("trigger", [{}, {"processingTime": "0 seconds"}])
def test_every_trigger_delivers_every_row_once(spark, tmp_path, trigger):
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    for number in range(3):
        write_csv(feed / f"{number}.csv", "k,ms,v", [(f"k{i % 5}", number * 100 + i, i) for i in range(50)])
    frame = (
        spark.readStream.format("upstream")
        .options(key="k", eventTime="ms", timeFormat="epoch_ms", maxRowsPerTrigger="20", watermarkDelay="10 ms")
        .load(str(feed))
    )
    rows = collect(frame, checkpoint, **trigger)
    data = [row for row in rows if not row["_upstream"]["punctuation"]]
    assert sorted((row["k"], row["ms"], row["v"]) for row in data) == sorted(
        (f"k{i % 5}", number * 100 + i, i) for number in range(3) for i in range(50)
    )
    bounds = [row["ms"] for row in rows if row["_upstream"]["punctuation"]]
    assert bounds == sorted(set(bounds))
    assert bounds[-1] == 239
    assert len({row["_upstream"]["seq"] for row in data}) == 150
    # As if the process had died after the last batch ran and before Spark noted it: the same rows come again.
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    again = collect(frame, checkpoint)
    assert again
    assert again == rows[-len(again) :]
    assert collect(frame, checkpoint) == []
    write_csv(feed / "3.csv", "k,ms,v", [("z", 1000, 1)])
    assert [row["k"] for row in collect(frame, checkpoint) if not row["_upstream"]["punctuation"]] == ["z"]


def test_batch_reads_the_same_rows_in_several_tasks(spark, tmp_path):
    write_csv(tmp_path / "a.csv", "k,ms,v", [(f"k{i % 7}", i, i) for i in range(200_000)])
    reader = spark.read.format("upstream").options(
        key="k", eventTime="ms", timeFormat="epoch_ms", splitBytes="200 KB", minPartitions="4"
    )
    frame = reader.load(str(tmp_path / "a.csv"))
    assert frame.count() == 200_000
    assert frame.where("_upstream.punctuation").count() == 0
    newest = reader.option("coalesce", "true").load(str(tmp_path / "a.csv"))
    assert newest.rdd.getNumPartitions() > 1
    assert newest.selectExpr("sum(_upstream.covered)").first() == (200_000,)
    assert newest.count() == 7 * newest.rdd.getNumPartitions()
    assert newest.groupBy("k").max("v").where("`max(v)` < 199993").count() == 0


def test_wrong_options_are_one_error_before_anything_runs(spark, tmp_path):
    write_csv(tmp_path / "a.csv", "k,ms,v", [("x", 1, 1)])
    reader = spark.readStream.format("upstream").options(maxRowPerTrigger="5", coalesce="maybe", speed="3")
    with pytest.raises(AnalysisException) as caught:
        reader.load(str(tmp_path / "a.csv"))
    for part in ("'maxRowsPerTrigger'", "coalesce='maybe'", "connector=replay"):
        assert part in str(caught.value)
    with pytest.raises(OptionError, match=r"^coalesce='maybe' is not true or false\. What to do: "):
        latest(spark, str(tmp_path / "a.csv"), key="k", coalesce="maybe")


def test_backlog_is_in_the_progress_report(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "k,ms,v", [("x", i, i) for i in range(300)])
    frame = spark.readStream.format("upstream").option("maxRowsPerTrigger", "100").load(str(tmp_path / "feed"))
    query = run_to_end(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")))
    reports = [json.loads(progress.json)["sources"][0] for progress in query.recentProgress]
    waiting = [report["latestOffset"]["backlog"]["bytes"] for report in reports]
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] > 0
    assert [report["numInputRows"] for report in reports] == [100] * 3


def test_a_replay_goes_on_after_a_restart_and_ends(spark, tmp_path):
    recorded, checkpoint = tmp_path / "recorded.jsonl", tmp_path / "checkpoint"
    lines = [
        {"key": n % 7, "time": f"2024-01-01T00:00:{n // 100:02d}.{n % 100:02d}Z", "value": n / 8} for n in range(400)
    ]
    recorded.write_text("\n".join(map(json.dumps, lines)) + "\n")
    rows = (
        spark.readStream.format("upstream")
        .options(connector="replay", path=str(recorded), eventTime="time", key="key", speed="4")
        .load()
    )
    found: list[Any] = []
    writer = (
        rows.where("not _upstream.punctuation")
        .select("_upstream.seq", "value", F.col("_upstream.arrival").cast("double"))
        .writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
        .option("checkpointLocation", str(checkpoint))
    )
    for enough in (1, 400):
        query = writer.start()
        wait_for(lambda enough=enough: len(found) >= enough, query.exception)
        query.stop()
    # A batch that was stopped is run again.
    assert [value for _, value, _ in sorted(set(found))] == [n / 8 for n in range(400)]
    assert max(found)[2] - min(found)[2] == pytest.approx(3.99 / 4, abs=0.01)
