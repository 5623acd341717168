"""Aggregates over the newest row of each key on Spark, over restarts."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us
from upstream.conf.errors import OptionError, SchemaError

pytestmark = pytest.mark.spark


def feed(spark, folder, **options):
    given = {"key": "bus", "maxFilesPerTrigger": 1, **options}
    rows = csv_feed(spark, f"{folder}/*.csv", "bus STRING, ms BIGINT, route STRING, speed BIGINT", **given)
    return us.UpdateStream(rows, key="bus", event_time="ms")


def test_vehicles_of_each_route_now(spark, tmp_path):
    chance = random.Random(5)
    rows = []
    for run in range(2):
        for number in range(3):
            more = [
                (
                    f"b{chance.randrange(12)}",
                    run * 200 + number * 50 + chance.randrange(90),
                    f"r{chance.randrange(5)}",
                    at,
                )
                for at in range(40)
            ]
            rows += more
            write_csv(tmp_path / "feed" / f"{run}{number}.csv", "bus,ms,route,speed", more)
        now = feed(spark, tmp_path / "feed", coalesce=run == 1).where("speed % 5 <> 1", on_leave="delete")
        grouped = now.group_by("route", shards=3).agg(n=us.count(), speed=us.avg("speed"), most=us.max("speed"))
        assert grouped.schema.names == ["route", "n", "speed", "most", "_upstream"]
        assert (grouped.key, grouped.event_time) == (("route",), None)
        write_to_end(grouped, tmp_path / "table", tmp_path / "checkpoint")
        newest = {}
        for row in rows:
            if row[0] not in newest or row[1] >= newest[row[0]][1]:
                newest[row[0]] = row
        groups = {}
        for _, _, route, speed in newest.values():
            if speed % 5 != 1:
                groups.setdefault(route, []).append(speed)
        found = read_frame(tmp_path / "table").select("route", "n", "speed", "most").rows()
        assert {row[0]: row[1:] for row in found} == {
            route: (len(speeds), sum(speeds) / len(speeds), max(speeds)) for route, speeds in groups.items()
        }
    with pytest.raises(SchemaError, match="in place of the one before"):
        grouped.window("10 ms")
    assert "groups of newest rows, group by route" in grouped.explain()


def test_what_makes_no_sense_is_refused(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a.csv", "bus,ms,route,speed", [("b", 1, "r", 1)])
    stream = feed(spark, tmp_path / "feed")
    with pytest.raises(OptionError, match="nothing to aggregate"):
        stream.group_by("route").agg()
    with pytest.raises(OptionError, match="is no aggregate"):
        stream.group_by("route").agg(n="count")
    with pytest.raises(OptionError, match="at least one column"):
        stream.group_by()
    with pytest.raises(SchemaError, match="which the stream has not"):
        stream.group_by("line")
    with pytest.raises(SchemaError, match="results have a column of that name"):
        stream.group_by("route").agg(route=us.count())
