"""The fluent stream on Spark: rows wait in state, batches go on until the queue is empty, the table is right."""

from __future__ import annotations

import random
import uuid

import deltalake
import pyarrow as pa
import pytest
from kit.feeds import csv_feed
from kit.queries import write_to_end
from kit.tables import read_by_key
from pyspark.sql import functions as F

import upstream

pytestmark = pytest.mark.spark


def write_feed(folder, rows, files=4, seed=1):
    """Rows (key, time, value) as CSV files; returns the newest value per key."""
    folder.mkdir(exist_ok=True)
    generator = random.Random(seed)
    newest, part = {}, max(1, rows // files)
    for number in range(files):
        with open(folder / f"part-{seed}-{number}.csv", "w") as out:
            out.write("key,ms,value\n")
            for i in range(part):
                key, ms = (
                    f"k{generator.randrange(200)}",
                    seed * 10_000_000 + number * part + i - generator.randrange(50),
                )
                value = number * part + i
                out.write(f"{key},{ms},{value}\n")
                if ms >= newest.get(key, (-1, 0))[0]:
                    newest[key] = (ms, value)
    return newest


def test_all_that_waits_is_delivered_over_a_restart(spark, tmp_path):
    for seed in (1, 2):
        newest = write_feed(tmp_path / "feed", 2000, seed=seed)
        rows = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
        write_to_end(rows.queue(policy="in-place", budget=40, shards=4), tmp_path / "table", tmp_path / "checkpoint")
        found = read_by_key(tmp_path / "table", "key", "value")
        assert {key: found[key] for key in newest} == {key: value for key, (_, value) in newest.items()}
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert len([each for each in summaries if each.delivered]) >= 10  # 200 keys, 40 a batch, in each run
    assert all(each.rows <= 40 for each in summaries)
    assert sum(each.updates for each in summaries) == 4000
    assert not any(each.stray_buckets for each in summaries)  # as many buckets as shards: each comes in one task


@pytest.mark.parametrize("policy", [None, "append"])
def test_a_key_whose_newest_row_fails_leaves_the_table(spark, tmp_path, policy):
    newest = write_feed(tmp_path / "feed", 1200)
    expected = {key: value % 3 for key, (_, value) in newest.items() if value % 3}
    checkpoint, seen = tmp_path / "checkpoint", tmp_path / "seen"
    seen.mkdir()

    def rest(batch):
        values = batch.column("value").to_pylist()
        (seen / uuid.uuid4().hex).write_text(" ".join(map(str, values)))
        return pa.table({"rest": pa.array([value % 3 for value in values], pa.int64())})

    # One file a batch, so that keys leave, come back and leave again.
    updates = csv_feed(spark, tmp_path / "feed", maxFilesPerTrigger=1)
    stream = upstream.UpdateStream(updates, key="key", event_time="ms").where("value % 3 <> 0", on_leave="delete")
    # A tombstone goes into no computation that the condition guards: this one would divide by zero.
    stream = stream.select("value", (F.lit(6) / (F.col("value") % 3)).alias("ratio"))
    if policy is not None:
        stream = stream.queue(checkpoint_location=checkpoint, policy=policy, budget=100, shards=4)
    stream = stream.where("value >= 0").map(rest, "rest BIGINT NOT NULL")  # though punctuation has nothing in it
    write_to_end(stream, tmp_path / "table", checkpoint)
    rows = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["rest"] for row in rows} == expected
    assert len(rows) == len(expected)
    values = [int(value) for file in seen.iterdir() for value in file.read_text().split()]
    assert values
    assert all(value % 3 for value in values), "the function was given a tombstone"
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert sum(each.deleted for each in summaries) > 0
    assert sum(each.updates for each in summaries) == 1200
    assert summaries[-1].keys == len(expected)
    assert summaries[-1].low_watermark is not None


def test_a_tombstone_is_marked_alone_and_keeps_key_and_time(spark, tmp_path):
    ddl = upstream.with_system_ddl("key STRING, ms BIGINT, value BIGINT")
    marks = (
        "named_struct('punctuation', {}, 'source', 'a', 'seq', 1L, 'arrival', now(), 'first_arrival', now(), "
        "'covered', 1L, 'deleted', {})"
    )
    rows = [("'a'", 1, 5, "false", "false"), ("'b'", 2, -5, "null", "null"), ("'c'", 3, "null", "false", "null"),
            ("null", 9, "null", "true", "false"), ("'d'", 4, "null", "false", "true")]  # fmt: skip
    union = " UNION ALL ".join(
        f"SELECT {key} AS key, {ms}L AS ms, CAST({value} AS BIGINT) AS value, {marks.format(punctuation, deleted)} AS "
        "_upstream"
        for key, ms, value, punctuation, deleted in rows
    )
    df = spark.sql(union)
    assert [field.name for field in df.schema] == [field.name for field in spark.createDataFrame([], ddl).schema]
    stream = upstream.UpdateStream(df, key="key", event_time="ms")

    def outcome(filtered):
        assert filtered.df.columns == df.columns
        found = filtered.df.selectExpr("key", "ms", "value", "_upstream.deleted", "_upstream.seq").collect()
        return sorted((tuple(row) for row in found), key=lambda row: row[1])

    assert outcome(stream.where("value > 0", on_leave="delete")) == [
        ("a", 1, 5, False, 1), ("b", 2, None, True, 1), ("c", 3, None, True, 1), ("d", 4, None, True, 1),
        (None, 9, None, False, 1),
    ]  # fmt: skip
    assert outcome(stream.where(F.col("value") > 0)) == [
        ("a", 1, 5, False, 1), ("d", 4, None, True, 1), (None, 9, None, False, 1),
    ]  # fmt: skip


def test_sparks_own_vacuum_leaves_what_is_remembered(spark, tmp_path):
    write_feed(tmp_path / "feed", 200)
    path = tmp_path / "table"
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
    write_to_end(stream.where("value % 3 <> 0", on_leave="delete"), path, tmp_path / "checkpoint")
    before = sorted(file for file in (path / "_upstream_tombstones").rglob("*") if file.is_file())
    stray = path / "_upstream_bucket=0" / "stray.parquet"
    stray.write_bytes(b"x")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert not stray.exists()
    assert len(before) >= 2
    assert sorted(file for file in (path / "_upstream_tombstones").rglob("*") if file.is_file()) == before
    assert spark.read.format("delta").load(str(path)).where("value % 3 = 0").count() == 0
