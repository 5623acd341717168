"""Joins with Delta tables on Spark: the version is that of the batch's offsets, over failures and restarts."""

import json

import polars as pl
import pytest
from deltalake import write_deltalake
from kit.feeds import csv_feed, write_csv

import upstream as us

pytestmark = pytest.mark.spark

SCHEMA = "key STRING, ms BIGINT, route BIGINT"


def write_routes(folder, **names):
    frame = pl.DataFrame({"id": [int(each[1:]) for each in names], "name": list(names.values())})
    write_deltalake(str(folder), frame.to_arrow(), mode="overwrite")


def feed(spark, folder):
    rows = csv_feed(spark, folder, SCHEMA, maxFilesPerTrigger=1, watermark="bounded", watermarkDelay="1 s")
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
