"""Joins with Delta tables on Spark: the version is that of the batch's offsets, over failures and restarts."""

from __future__ import annotations

import json
import os

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us
from upstream.conf.errors import OptionError, SchemaError, TableError

pytestmark = pytest.mark.spark

SCHEMA = "key STRING, ms BIGINT, route BIGINT"


def write_routes(folder, **names):
    frame = pl.DataFrame({"id": [int(each[1:]) for each in names], "name": list(names.values())})
    write_deltalake(str(folder), frame.to_arrow(), mode="overwrite")


def feed(spark, folder):
    rows = csv_feed(spark, folder, SCHEMA, maxFilesPerTrigger=1, progress="bounded", progressDelay="1 s")
    return us.UpdateStream(rows, key="key", event_time="ms")


def test_a_batch_that_runs_again_reads_the_version_that_it_was_planned_with(spark, tmp_path):
    routes, place = tmp_path / "routes", str(tmp_path / "checkpoint")
    write_routes(routes, r1="one", r2="two")
    named = feed(spark, tmp_path / "feed")
    seen, fails = [], [True]

    def run():
        stream = named.join_table(routes, on={"route": "id"}, how="left")

        def take(frame, number):
            rows = sorted((row["key"], row["name"]) for row in frame.collect() if not row["_upstream"]["punctuation"])
            seen.append((number, rows))
            if number == 1 and fails[0]:
                raise RuntimeError("the machine is gone")

        writer = stream.dataframe(place).writeStream.foreachBatch(take).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    (tmp_path / "feed").mkdir()
    write_csv(tmp_path / "feed" / "1.csv", "key,ms,route", [("a", 1, 1), ("b", 2, 3)])
    run()
    assert seen == [(0, [("a", "one"), ("b", None)])]
    write_csv(tmp_path / "feed" / "2.csv", "key,ms,route", [("c", 3, 1), ("d", 4, 2)])
    write_routes(routes, r1="uno", r2="dos")
    with pytest.raises(Exception, match="the machine is gone"):
        run()
    write_routes(routes, r1="eins", r3="drei")
    write_csv(tmp_path / "feed" / "3.csv", "key,ms,route", [("e", 5, 1), ("f", 6, 2)])
    fails[0] = False
    run()
    assert seen[1:3] == [(1, [("c", "uno"), ("d", "dos")])] * 2
    assert sorted(row for _, rows in seen[3:] for row in rows) == [("e", "eins"), ("f", None)]
    versions = [
        json.loads(line)["version"]
        for number in (0, 1, 2)
        for line in (tmp_path / "checkpoint" / "offsets" / str(number)).read_text().splitlines()
        if "upstream_table" in line
    ]
    assert versions == [0, 1, 2]


def test_a_frame_of_sparks_own_is_joined_before_windows_and_written(spark, tmp_path):
    write_routes(tmp_path / "routes", r1="one", r2="two")
    write_csv(
        tmp_path / "feed" / "1.csv", "key,ms,route", [("a", 100, 1), ("a", 200, 2), ("b", 300, 9), ("a", 9000, 1)]
    )
    frame = spark.readStream.schema(SCHEMA).option("header", True).csv(str(tmp_path / "feed"))
    rows = us.UpdateStream.from_dataframe(
        frame, key="key", event_time="ms", time_format="epoch_ms", watermark=us.Watermark.ordered()
    )
    named = rows.join_table(tmp_path / "routes", on={"route": "id"})
    assert named.schema.names == ["key", "ms", "route", "name", "_upstream"]
    assert (named.key, named.event_time) == (("key",), "ms")
    assert "join with the table" in named.explain()
    with pytest.raises(OptionError, match="not known yet"):
        _ = named.df
    counts = named.where("name <> ''").window("1 second", output="all", time_format="epoch_ms").agg(n=us.count())
    into = {"key": ("key", "window_id"), "event_time": "window_time"}
    write_to_end(counts, tmp_path / "table", tmp_path / "checkpoint", **into)
    # How far a DataFrame is complete, as one batch shows it, counts from the next batch on.
    write_csv(tmp_path / "feed" / "2.csv", "key,ms,route", [("a", 9500, 1)])
    write_to_end(counts, tmp_path / "table", tmp_path / "checkpoint", **into)
    assert read_frame(tmp_path / "table").select("key", "window_id", "n").rows() == [("a", 0, 2)]


def test_a_version_that_is_gone_and_a_table_that_is_none_are_told(spark, tmp_path):
    routes = tmp_path / "routes"
    (tmp_path / "feed").mkdir()
    write_csv(tmp_path / "feed" / "1.csv", "key,ms,route", [("a", 1, 1)])
    stream = feed(spark, tmp_path / "feed")
    with pytest.raises(TableError, match="there is no Delta table at"):
        stream.join_table(routes, on={"route": "id"})
    write_routes(routes, r1="one")
    with pytest.raises(SchemaError, match="type int64 and name of type string"):
        stream.join_table(routes, on={"route": "name"})
    for file in DeltaTable(str(routes)).file_uris():
        os.remove(file.removeprefix("file://"))
    with pytest.raises(Exception, match=r"version 0 of the table at .* cannot be read.*VACUUM"):
        write_to_end(stream.join_table(routes, on={"route": "id"}), tmp_path / "table", tmp_path / "checkpoint")
