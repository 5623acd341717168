"""Any streaming DataFrame as an update stream, on Spark: files, a Delta table's change feed, Kafka's columns."""

import json
import os
import random

import polars as pl
import pytest
from kit.queries import write_to_end
from kit.tables import read_by_key
from pyspark.sql import functions as F

import upstream
from upstream.conf.errors import OptionError, SchemaError
from upstream.core.feedback.checkpoint_layout import feeds_folder
from upstream.core.feedback.reports import read_feed_reports

pytestmark = pytest.mark.spark

DELAY_S = 20
DDL = "feed STRING, k STRING, s STRING, n BIGINT, v BIGINT"


def write_files(folder, first, last, per_file=60):
    """CSV files of two feeds, one of them behind the other; some rows too late, some malformed."""
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        chance = random.Random(number)
        lines = []
        for at in range(per_file):
            n = number * per_file + at
            feed = chance.choice(["north", "south"])
            second = n - (30 if feed == "south" else 0) - chance.randrange(DELAY_S - 2)
            if number > 2 and chance.random() < 0.05:
                second -= 60
            key = "" if chance.random() < 0.03 else f"k{chance.randrange(6)}"
            text = "soon" if chance.random() < 0.03 else str(1_700_000_000 + second)
            lines.append(f"{feed},{key},{text},{n},{chance.randrange(100)}")
        file = folder / f"part-{number:03d}.csv"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))  # Spark takes the oldest first


def read_all(folder):
    """All rows, and those of them that can be used, with their time as a number."""
    rows = pl.concat(
        pl.read_csv(file, has_header=False, new_columns=["feed", "k", "s", "n", "v"], schema_overrides={"s": pl.String})
        for file in sorted(folder.glob("*.csv"))
    ).with_columns(pl.col("s").cast(pl.Int64, strict=False).alias("t"))
    return rows, rows.filter(pl.col("t").is_not_null() & pl.col("k").is_not_null())


def stream_of(spark, folder, place, **options):
    df = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).csv(str(folder))
    df = df.withColumn("t", F.expr("try_cast(s AS BIGINT)"))
    given = {
        "key": "k",
        "event_time": "t",
        "time_format": "epoch_s",
        "watermark": upstream.Watermark.bounded(f"{DELAY_S} s"),
        "feed": "feed",
        "order": "n",
        "shards": 4,
    }
    return upstream.UpdateStream.from_dataframe(df, **{**given, **options})


def run(stream, place):
    write_to_end(stream, place / "table", place / "checkpoint")


def newest(rows):
    return dict(rows.sort("t", "n").group_by("k", maintain_order=True).last().select("k", "v").iter_rows())


def test_files_of_spark_end_in_the_latest_table_and_aside_though_the_query_dies(spark, tmp_path):
    """It dies in its fifth batch."""
    feed, broken = tmp_path / "feed", tmp_path / "broken"
    watermark = upstream.Watermark.bounded(f"{DELAY_S} s").guarded(max_jump="1 day", confirmations=3)

    def dies(batch):
        if broken.exists() and broken.read_text() in map(str, batch.column("n").to_pylist()):
            raise RuntimeError("the machine is gone")
        return batch.select(["v"]).rename_columns(["value"])

    write_files(feed, 0, 2)
    begun = stream_of(spark, feed, tmp_path, dead_letter_rows="late", watermark=watermark)
    assert begun.schema.names == ["feed", "k", "s", "n", "v", "t", "_upstream"]
    run(begun.map(dies, "value BIGINT"), tmp_path)
    write_files(feed, 2, 8)
    continued = stream_of(spark, feed, tmp_path, dead_letter_rows="late", watermark=watermark)
    broken.write_text("250")
    with pytest.raises(Exception, match="the machine is gone"):
        run(continued.map(dies, "value BIGINT"), tmp_path)
    broken.unlink()
    run(continued.map(dies, "value BIGINT"), tmp_path)

    every, usable = read_all(feed)
    assert read_by_key(tmp_path / "table", "k", "value") == newest(usable)
    aside = pl.read_delta(str(tmp_path / "checkpoint" / "dead_letters"))
    written, dead = aside.filter(pl.col("reason") == "late"), aside.filter(pl.col("reason") != "late")
    late = [json.loads(row) for row in written["payload"]]
    assert 3 < len({row["n"] for row in late}) == written.height, "once each, though a batch was repeated"
    assert {row["_upstream_source"] for row in late} <= set(usable["feed"])
    assert sorted(json.loads(row)["n"] for row in dead["payload"]) == sorted(
        every.join(usable, on="n", how="anti")["n"].to_list()
    )
    assert dead["reason"].n_unique() == 2
    assert set(dead["origin"]) == {"rows"}
    assert dead["batch"].null_count() == 0
    reports = read_feed_reports(feeds_folder(str(tmp_path / "checkpoint"), "rows"))
    newest_times = dict(usable.group_by("feed").agg(pl.col("t").max()).iter_rows())
    assert {each.feed: each.bound // 1_000_000 + DELAY_S for each in reports} == newest_times
    assert sum(report.rows for report in reports) == every.height
    assert sum(report.late for report in reports) == written.height
    assert sum(report.malformed for report in reports) == dead.height


def test_a_delta_tables_changes_and_deletions(spark, tmp_path):
    path = str(tmp_path / "changes")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (k BIGINT, t TIMESTAMP, v BIGINT) USING delta TBLPROPERTIES "
        "(delta.enableChangeDataFeed = true)"
    )
    at = "timestamp_seconds(1700000000 + {})"
    for number in range(4):
        rows = ", ".join(f"({key}L, {at.format(number * 10 + key)}, {number * 10 + key}L)" for key in range(5))
        spark.sql(f"INSERT INTO delta.`{path}` VALUES {rows}")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 3")
    df = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    stream = upstream.UpdateStream.from_dataframe(
        df, key="k", event_time="t", watermark=upstream.Watermark.bounded("5 s"), order="_commit_version",
        deleted="_change_type = 'delete'", name="changes",
    )  # fmt: skip
    run(stream, tmp_path)
    assert read_by_key(tmp_path / "table", "k", "v") == {0: 30, 1: 31, 2: 32, 4: 34}
    assert [report.rows for report in read_feed_reports(feeds_folder(str(tmp_path / "checkpoint"), "changes"))] == [24]


def test_columns_of_sparks_kafka_source_say_feed_and_order(spark, tmp_path):
    (tmp_path / "feed").mkdir()
    lines = [f"gps,{n % 3},{1000 - n},k{n % 5},{n}" for n in range(60)]
    (tmp_path / "feed" / "a.csv").write_text("\n".join(lines) + "\n")
    df = spark.readStream.schema("topic STRING, partition INT, offset BIGINT, k STRING, v BIGINT").csv(
        str(tmp_path / "feed")
    )
    stream = upstream.UpdateStream.from_dataframe(df, key="k")
    run(stream, tmp_path)
    reports = read_feed_reports(feeds_folder(str(tmp_path / "checkpoint"), "rows"))
    assert [report.feed for report in reports] == ["gps/0", "gps/1", "gps/2"]
    assert [report.bound for report in reports] == [None] * 3, "without a time there is no promise"


def test_refusals_before_anything_runs(spark, tmp_path):
    (tmp_path / "feed").mkdir()
    good = spark.readStream.schema(DDL).csv(str(tmp_path / "feed"))

    def made(df=good, **options):
        given = {"key": "k", "event_time": "n", "time_format": "epoch_s", **options}
        return upstream.UpdateStream.from_dataframe(df, **given)

    assert made(on_malformed="fail").plan.specification.fail
    bounded = upstream.Watermark.bounded("1 s")
    for error, match, options in (
        (OptionError, "stream", {"df": spark.range(3)}),
        (SchemaError, "absent", {"key": "absent"}),
        (SchemaError, "epoch_ms", {"time_format": None}),
        (SchemaError, "_upstream", {"df": good.withColumn("_upstream", F.lit(1))}),
        (SchemaError, "stamp", {"watermark": upstream.Watermark.arrival()}),
        (OptionError, "'bounded'", {"event_time": None, "watermark": bounded}),
        (OptionError, "watermark='5 minutes'", {"watermark": "5 minutes"}),
        (OptionError, "'from_table'", {"watermark": upstream.Watermark("from_table")}),
        (OptionError, "on_malformed='drop'", {"on_malformed": "drop"}),
        (OptionError, "Europe/Atlantis", {"time_zone": "Europe/Atlantis"}),
        (OptionError, "shards=0", {"shards": 0}),
        (OptionError, "a/b", {"name": "a/b"}),
        (OptionError, "part of the key", {"key": ("k", "n")}),
    ):
        with pytest.raises(error, match=match):
            made(**options)
