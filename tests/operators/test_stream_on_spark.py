"""The fluent stream on Spark: rows wait in state, batches go on until the queue is empty, the table is right."""

import itertools
import json
import random
import time
import uuid

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_by_key
from kit.waiting import wait_for
from pyspark.sql import functions as F

import upstream
from upstream.conf.errors import SchemaError
from upstream.operators.queue.tick_planner import BatchCost, auto_budget
from upstream.workbench import places_of

pytestmark = pytest.mark.spark


def write_feed(folder, rows, files=4, seed=1):
    """Rows (key, time, value) as CSV files; returns the newest time and value of each key."""
    generator, newest = random.Random(seed), {}
    for number in range(files):
        part = []
        for at in range(number * rows // files, (number + 1) * rows // files):
            row = (f"k{generator.randrange(200)}", seed * 10_000_000 + at - generator.randrange(50), at)
            part.append(row)
            if row[1] >= newest.get(row[0], (-1, 0))[0]:
                newest[row[0]] = row[1:]
        write_csv(folder / f"part-{seed}-{number}.csv", "key,ms,value", part)
    return newest


def test_all_that_waits_is_applied_over_a_restart(spark, tmp_path):
    for seed in (1, 2):
        newest = write_feed(tmp_path / "feed", 2000, seed=seed)
        rows = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
        write_to_end(rows.queue(policy="in-place", budget=40, shards=4), tmp_path / "table", tmp_path / "checkpoint")
        found = read_by_key(tmp_path / "table", "key", "value")
        assert {key: found[key] for key in newest} == {key: value for key, (_, value) in newest.items()}
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").commits()]
    assert len([each for each in summaries if each.applied]) >= 10  # 200 keys, 40 a batch, in each run
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
        stream = stream.queue(policy=policy, budget=100, shards=4)
    stream = stream.where("value >= 0").map(rest, "rest BIGINT NOT NULL")  # though punctuation has nothing in it
    write_to_end(stream, tmp_path / "table", checkpoint)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["rest"] for row in rows} == expected
    assert len(rows) == len(expected)
    values = [int(value) for file in seen.iterdir() for value in file.read_text().split()]
    assert values
    assert all(value % 3 for value in values), "the function was given a tombstone"
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").commits()]
    assert sum(each.deleted for each in summaries) > 0
    assert sum(each.updates for each in summaries) == 1200
    assert summaries[-1].keys == len(expected)


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


def write(folder, number, keys, value):
    rows = [(f"k{key:05}", 1_000_000 + number, value) for key in range(keys)]
    write_csv(folder / f"part-{number}.csv", "key,ms,value", rows)


def test_the_budget_is_found_from_what_rows_cost(spark, tmp_path):
    write(tmp_path / "feed", 0, 12_000, 1)
    checkpoint = tmp_path / "checkpoint"

    def slow(batch):
        time.sleep(0.001 * batch.num_rows)
        return pa.table({"twice": pa.compute.multiply(batch.column("value"), 2)})

    stream = (
        upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
        .queue(policy="in-place", budget="1 second", shards=4)
        .map(slow, "twice BIGINT", batch_rows=50)
    )
    query = upstream.write_latest(stream, str(tmp_path / "table"), checkpoint=str(checkpoint)).start()
    table = str(tmp_path / "table")
    assert places_of(query) == [table], "what us.ui shows, also before the first commit"
    wait_for(
        lambda: DeltaTable.is_deltatable(table) and DeltaTable(table).to_pyarrow_table().num_rows == 12_000,
        query.exception,
    )
    query.stop()
    journaled = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = [line for path in journaled for line in path.read_text().splitlines()]
    ticks = [json.loads(line) for line in lines if '"tick"' in line]
    # Each is what the costs that were known by then ask for, however busy the machine is that they were measured on.
    known = [(before["budget"], tick) for before, tick in itertools.pairwise(ticks) if tick["cost"]["batches"]]
    assert [tick["budget"] for _, tick in known] == [
        auto_budget(BatchCost(**tick["cost"]), last, pending=1, duration_s=1.0) for last, tick in known
    ]
    assert len({tick["budget"] for _, tick in known}) > 1


def test_a_schema_without_the_system_column_names_the_cure(spark, tmp_path):
    write(tmp_path / "feed", 0, 2, 1)
    bare = (
        spark.readStream.format("upstream").schema("key STRING, ms BIGINT, value BIGINT").load(str(tmp_path / "feed"))
    )
    with pytest.raises(SchemaError, match="with_system_ddl"):
        upstream.UpdateStream(bare, key="key", event_time="ms")
    whole = spark.readStream.format("upstream").option("schema", "key STRING, ms BIGINT, value BIGINT")
    assert upstream.UpdateStream(whole.load(str(tmp_path / "feed")), key="key", event_time="ms").key == ("key",)
