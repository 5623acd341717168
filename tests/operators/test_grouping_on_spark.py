"""Aggregates over the newest row of each key on Spark, over restarts."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us

pytestmark = pytest.mark.spark


def test_vehicles_of_each_route_now(spark, tmp_path):
    chance = random.Random(5)
    rows = []
    for run in range(2):
        for number in range(3):
            begin = run * 200 + number * 50
            more = [
                (f"b{chance.randrange(12)}", begin + chance.randrange(90), f"r{chance.randrange(5)}", at)
                for at in range(40)
            ]
            rows += more
            write_csv(tmp_path / "feed" / f"{run}{number}.csv", "bus,ms,route,speed", more)
        feed = csv_feed(
            spark, tmp_path / "feed", "bus STRING, ms BIGINT, route STRING, speed BIGINT", key="bus",
            maxFilesPerTrigger=1, coalesce=run == 1,
        )  # fmt: skip
        now = us.UpdateStream(feed, key="bus", event_time="ms").where("speed % 5 <> 1", on_leave="delete")
        grouped = now.group_by("route", shards=3).agg(n=us.count(), speed=us.avg("speed"), most=us.max("speed"))
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
