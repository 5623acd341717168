"""The fluent stream on Spark: rows wait in state, batches go on until the queue is empty, the table is right."""

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
from upstream.conf.errors import OptionError, SchemaError

pytestmark = pytest.mark.spark


class Asked(upstream.UpdateStream):
    """Counts how often it asks Spark what a step makes of its columns."""

    times = 0

    def _sample(self):
        type(self).times += 1
        return super()._sample()


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


@pytest.mark.parametrize("policy", ["in-place", "auto"])
def test_all_that_waits_is_delivered_and_the_table_is_right(spark, tmp_path, policy):
    newest = write_feed(tmp_path / "feed", 4000)
    checkpoint = tmp_path / "checkpoint"
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms").queue(
        checkpoint_location=checkpoint, policy=policy, budget=40, shards=4
    )
    query = write_to_end(stream, tmp_path / "table", checkpoint)
    assert read_by_key(tmp_path / "table", "key", "value") == {key: value for key, (_, value) in newest.items()}
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert len([each for each in summaries if each.delivered]) >= 5  # 200 keys, 40 a batch
    assert all(each.rows <= 40 for each in summaries)
    assert sum(each.updates for each in summaries) <= 4000
    assert not any(each.stray_buckets for each in summaries)  # as many buckets as shards: each comes in one task
    assert summaries[-1].low_watermark is not None
    assert query.id


def test_steps_let_punctuation_pass_and_leave_key_and_time_alone(spark, tmp_path):
    newest = write_feed(tmp_path / "feed", 400)
    checkpoint = tmp_path / "checkpoint"

    def doubled(batch):
        return pa.table({"double": pa.compute.multiply(batch.column("value"), 2)})

    stream = (
        upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
        .where("value % 2 = 0")
        .queue(checkpoint_location=checkpoint, policy="in-place", budget=None, shards=4)
        .map(doubled, "double BIGINT NOT NULL", batch_rows=16)  # though punctuation has nothing in it
        .select("double", "double * 3 AS six")
    )
    assert stream.df.columns == ["key", "ms", "double", "six", "_upstream"]
    write_to_end(stream, tmp_path / "table", checkpoint)
    table = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert table
    assert all(row["double"] % 4 == 0 and row["six"] == row["double"] * 3 for row in table)
    agree = {row["key"]: row["double"] // 2 for row in table}
    assert all(agree[key] == value for key, (_, value) in newest.items() if value % 2 == 0)
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert summaries[-1].low_watermark is not None


def test_refusals_before_anything_runs(spark, tmp_path):
    write_feed(tmp_path / "feed", 4)
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
    for budget in (0, -3, 1.5, "much"):
        with pytest.raises(OptionError, match="budget"):
            stream.queue(checkpoint_location=tmp_path, budget=budget)
    with pytest.raises(OptionError, match=r"lifo.*in-place"):
        stream.queue(checkpoint_location=tmp_path, policy="lifo")
    with pytest.raises(SchemaError, match="key"):
        stream.map(lambda batch: batch, "key STRING")
    with pytest.raises(SchemaError, match="ms"):
        stream.select((F.col("ms") + 1).alias("ms"))
    with pytest.raises(SchemaError, match="absent"):
        upstream.UpdateStream(stream.df, key="absent")
    with pytest.raises(OptionError, match="without an update key"):
        upstream.write_latest(stream.df, tmp_path / "table")


@pytest.mark.parametrize("policy", [None, "in-place", "append"])
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
    stream = stream.where("value >= 0").map(rest, "rest BIGINT")
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
    with pytest.raises(OptionError, match=r"on_leave='drop'.*'keep' or 'delete'"):
        stream.where("value > 0", on_leave="drop")


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


@pytest.mark.long
def test_keys_of_a_megabyte_wait_and_arrive(spark, tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()
    keys = [letter * 1_000_000 for letter in "abc"]
    for number in range(2):
        lines = [f"{key},{number * 10 + place},{number}\n" for place, key in enumerate(keys)]
        (folder / f"part-{number}.csv").write_text("key,ms,value\n" + "".join(lines))
    checkpoint = tmp_path / "checkpoint"
    stream = upstream.UpdateStream(csv_feed(spark, folder), key="key", event_time="ms").queue(
        checkpoint_location=checkpoint, policy="in-place", budget=1, shards=2
    )
    write_to_end(stream, tmp_path / "table", checkpoint)
    assert read_by_key(tmp_path / "table", "key", "value") == dict.fromkeys(keys, 1)
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert len([each for each in summaries if each.delivered]) >= 2  # not all at once


def test_a_select_asks_spark_once(spark, tmp_path):
    write_feed(tmp_path / "feed", 4)
    stream = Asked(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
    selected = stream.select("value", "ms", (F.col("value") + 1).alias("more"))
    assert selected.schema.names == ["key", "ms", "value", "more", "_upstream"]
    assert Asked.times == 1
    with pytest.raises(SchemaError, match="key, ms, _upstream would be computed anew"):
        stream.select("*")
