"""Any streaming DataFrame as an update stream, on Spark: files, a rate, a Delta table's change feed."""

from __future__ import annotations

import os
import random

import deltalake
import polars as pl
import pytest
from kit.queries import write_to_end
from kit.tables import read_by_key
from pyspark.sql import functions as F

import upstream
from upstream import aggregates as agg
from upstream.conf.errors import OptionError, SchemaError
from upstream.core.feedback.checkpoint_layout import feeds_folder
from upstream.core.feedback.feed_reports import read_feed_reports

pytestmark = pytest.mark.spark

DELAY_S, TUMBLE_S = 20, 10
DDL = "feed STRING, k STRING, s STRING, n BIGINT, v BIGINT"


def write_files(folder, first, last, per_file=60):
    """CSV files of two feeds, one of them behind the other; some rows too late, some malformed. The same for each
    number.
    """
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
    return upstream.UpdateStream.from_dataframe(df, checkpoint_location=place / "checkpoint", **{**given, **options})


def run(stream, place, table="table", **options):
    return write_to_end(stream, place / table, place / "checkpoint", **options)


def newest(rows):
    return dict(rows.sort("t", "n").group_by("k", maintain_order=True).last().select("k", "v").iter_rows())


def late_of(usable):
    """What is late: below the largest time that its feed had shown before the batch, less the delay."""
    found, seen = [], {}
    for number in sorted(set((usable["n"] // 60).to_list())):
        batch = usable.filter(pl.col("n") // 60 == number)
        found += [
            n for feed, t, n in batch.select("feed", "t", "n").iter_rows() if t < seen.get(feed, -(10**12)) - DELAY_S
        ]
        for feed, t in batch.select("feed", "t").iter_rows():
            seen[feed] = max(seen.get(feed, t), t)
    return sorted(found), seen


def test_files_of_spark_into_the_latest_table_with_late_and_malformed_rows_written(spark, tmp_path):
    write_files(tmp_path / "feed", 0, 8)
    stream = stream_of(spark, tmp_path / "feed", tmp_path, late_location=tmp_path / "late")
    assert stream.df.columns == ["feed", "k", "s", "n", "v", "t", "_upstream"]
    run(stream, tmp_path)
    every, usable = read_all(tmp_path / "feed")
    assert read_by_key(tmp_path / "table", "k", "v") == newest(usable)
    late, seen = late_of(usable)
    assert len(late) > 3
    written = pl.concat([pl.read_parquet(file) for file in (tmp_path / "late").glob("late-rows-*.parquet")])
    assert sorted(written["n"].to_list()) == late
    quarantined = pl.concat(
        [pl.read_parquet(file) for file in (tmp_path / "checkpoint" / "quarantine").glob("malformed-rows-*.parquet")]
    )
    assert sorted(quarantined["n"].to_list()) == sorted(every.join(usable, on="n", how="anti")["n"].to_list())
    assert quarantined["__upstream_reason"].n_unique() == 2
    reports = read_feed_reports(feeds_folder(str(tmp_path / "checkpoint"), "rows"))
    assert [report.feed for report in reports] == ["north", "south"]
    assert {report.feed: report.bound // 1_000_000 for report in reports} == {f: t - DELAY_S for f, t in seen.items()}
    assert sum(report.rows for report in reports) == every.height
    assert sum(report.late for report in reports) == len(late)
    assert sum(report.malformed for report in reports) == quarantined.height


def windows_table(place):
    table = pl.from_arrow(deltalake.DeltaTable(str(place / "table")).to_pyarrow_table())
    return table.drop("_upstream_seq").sort("k", "window_id")


def test_windows_are_right_and_the_same_however_often_the_query_dies(spark, tmp_path):
    feed, whole, killed = tmp_path / "feed", tmp_path / "whole", tmp_path / "killed"
    write_files(feed, 0, 8)
    for place in (whole, killed):
        place.mkdir()
    broken = killed / "broken"

    def every(place, function):
        stream = stream_of(spark, feed, place, late_location=place / "late")
        stream = stream.map(function, "value BIGINT")
        windows = stream.window(
            f"{TUMBLE_S} s", checkpoint_location=place / "checkpoint", output="all", time_format="epoch_s", shards=2
        )
        return windows.agg(n=agg.count(), total=agg.sum_("value"))

    def dies(batch):
        numbers = batch.column("n").to_pylist()
        if broken.exists() and broken.read_text() in map(str, numbers):
            raise RuntimeError("the machine is gone")
        return lives(batch)

    def lives(batch):
        return batch.select(["v"]).rename_columns(["value"])

    key = {"key": ("k", "window_id"), "event_time": "window_end"}
    run(every(whole, lives), whole, **key)
    for row in ("130", "250", "251"):  # in the third and in the fifth batch
        broken.write_text(row)
        with pytest.raises(Exception, match="the machine is gone"):
            run(every(killed, dies), killed, **key)
    broken.unlink()
    run(every(killed, dies), killed, **key)
    found = windows_table(whole)
    assert windows_table(killed).equals(found)
    lates = [sorted(file.name for file in (place / "late").glob("*.parquet")) for place in (whole, killed)]
    assert lates[0] == lates[1]
    assert lates[0]

    _, usable = read_all(feed)
    late, seen = late_of(usable)
    bound = min(seen.values()) - DELAY_S
    windows = usable.with_columns((pl.col("t") // TUMBLE_S).alias("window_id"))
    windows = windows.filter((pl.col("window_id") + 1) * TUMBLE_S <= bound)
    sure = windows.filter(~pl.col("n").is_in(late))
    least = sure.group_by("k", "window_id").agg(pl.len().alias("least"))
    most = windows.group_by("k", "window_id").agg(pl.len().alias("most"))
    joined = found.join(most, on=["k", "window_id"]).join(least, on=["k", "window_id"], how="left")
    assert joined.height == found.height, "a window of rows that nobody sent"
    assert least.join(found, on=["k", "window_id"], how="anti").height == 0, "a window is lost"
    assert joined.select(((pl.col("n") >= pl.col("least").fill_null(0)) & (pl.col("n") <= pl.col("most"))).all()).item()


def test_a_checkpoint_begun_with_the_old_names_continues_with_the_new_ones(spark, tmp_path):
    """The rows that are late in the later run show that progress was carried over, not begun again."""
    feed = tmp_path / "feed"
    old = {"time": "t", "progress": "bounded", "delay": f"{DELAY_S} s", "max_jump": "1 day", "confirmations": 3}
    new = {"watermark": upstream.Watermark.bounded(f"{DELAY_S} s").guarded(max_jump="1 day", confirmations=3)}
    write_files(feed, 0, 4)
    with pytest.warns(DeprecationWarning, match=r"from_dataframe\((time|progress)=") as warned:
        begun = stream_of(
            spark, feed, tmp_path, late_location=tmp_path / "late", event_time=None, watermark=None, **old
        )
    assert {each.filename for each in warned if "from_dataframe" in str(each.message)} == {__file__}
    run(begun, tmp_path)
    write_files(feed, 4, 8)
    continued = stream_of(spark, feed, tmp_path, late_location=tmp_path / "late", **new)
    assert continued.plan.specification == begun.plan.specification
    run(continued, tmp_path)
    _, usable = read_all(feed)
    assert read_by_key(tmp_path / "table", "k", "v") == newest(usable)
    late, _ = late_of(usable)
    written = pl.concat([pl.read_parquet(file) for file in (tmp_path / "late").glob("late-rows-*.parquet")])
    assert sorted(written["n"].to_list()) == late


def test_failing_by_option_names_the_row(spark, tmp_path):
    write_files(tmp_path / "feed", 0, 3)
    with pytest.raises(Exception, match=r"cannot be used.*on_malformed"):
        run(stream_of(spark, tmp_path / "feed", tmp_path, on_malformed="fail"), tmp_path)


def test_sparks_rate_stamped_by_the_clock(spark, tmp_path):
    df = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).option("numPartitions", 3).load()
    df = df.select((F.col("value") % 7).alias("k"), F.col("value").alias("v"))
    stream = upstream.UpdateStream.from_dataframe(
        df,
        key="k",
        event_time="came",
        watermark=upstream.Watermark.arrival(),
        order="v",
        checkpoint_location=tmp_path / "checkpoint",
        name="rate",
    )
    writer = upstream.write_latest(stream, str(tmp_path / "table"), checkpointLocation=str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    for _ in range(300):
        if query.exception() or (query.lastProgress and query.lastProgress["batchId"] >= 3):
            break
        query.awaitTermination(1)
    query.stop()
    assert not query.exception()
    table = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    top = max(row["v"] for row in table)
    assert {row["k"]: row["v"] for row in table} == {v % 7: v for v in range(top - 6, top + 1)}
    assert len({row["came"] for row in table}) == 1, "all of one batch"
    assert summaries[-1].low_watermark is not None
    assert (top + 1) % 50 == 0


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
        deleted="_change_type = 'delete'", checkpoint_location=tmp_path / "checkpoint", name="changes",
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
    stream = upstream.UpdateStream.from_dataframe(df, key="k", checkpoint_location=tmp_path / "checkpoint")
    run(stream, tmp_path)
    reports = read_feed_reports(feeds_folder(str(tmp_path / "checkpoint"), "rows"))
    assert [report.feed for report in reports] == ["gps/0", "gps/1", "gps/2"]
    assert [report.bound for report in reports] == [None] * 3, "without a time there is no promise"


def test_refusals_before_anything_runs(spark, tmp_path):
    (tmp_path / "feed").mkdir()
    good = spark.readStream.schema(DDL).csv(str(tmp_path / "feed"))

    def refused(error, match, df=good, **options):
        given = {"key": "k", "event_time": "n", "time_format": "epoch_s", "checkpoint_location": tmp_path, **options}
        with pytest.raises(error, match=match):
            upstream.UpdateStream.from_dataframe(df, **given)

    refused(OptionError, "does not stream", spark.range(3))
    refused(SchemaError, r"no column absent", key="absent")
    refused(SchemaError, r"holds numbers.*time_format=epoch_ms", time_format=None)
    refused(SchemaError, r"has the column _upstream already", good.withColumn("_upstream", F.lit(1)))
    refused(SchemaError, r"stamp rows in the column 'n'", watermark=upstream.Watermark.arrival())
    bounded = upstream.Watermark.bounded("1 s")
    refused(OptionError, r"policy 'bounded' without an event time", event_time=None, watermark=bounded)
    refused(OptionError, r"watermark='5 minutes'.*Watermark.bounded", watermark="5 minutes")
    refused(OptionError, r"'promised' for a DataFrame", watermark=upstream.Watermark("promised"))
    refused(OptionError, r"on_malformed='drop'", on_malformed="drop")
    refused(OptionError, r"time_zone='Europe/Atlantis'", time_zone="Europe/Atlantis")
    refused(OptionError, r"shards=0", shards=0)
    refused(OptionError, r"name='a/b'", name="a/b")
    refused(OptionError, r"both the time and part of the key", key=("k", "n"))
