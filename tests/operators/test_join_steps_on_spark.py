"""Joins and groups of newest rows on Spark: tables that hold them as they are now, over restarts."""

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us

pytestmark = pytest.mark.spark

BUSES = "bus STRING, ms BIGINT, route STRING, speed BIGINT"


def write_files(folder, name, header, files, row, seed):
    """Files of rows in any order of time."""
    chance = random.Random(f"{name}{seed}")
    found = []
    for number in range(files):
        rows = [row(chance, number * 50 + at) for at in range(50)]
        write_csv(folder / f"{name}-{seed}{number:03d}.csv", header, rows)
        found += rows
    return found


def bus(chance, at):
    return f"b{chance.randrange(20)}", at + chance.randrange(40), f"r{chance.randrange(6)}", at


def feed(spark, folder, name, schema, key, **options):
    rows = csv_feed(spark, f"{folder}/{name}-*.csv", schema, **{"key": key, "maxFilesPerTrigger": 1, **options})
    return us.UpdateStream(rows, key=key, event_time="ms")


def newest(rows):
    found = {}
    for row in rows:
        if row[0] not in found or row[1] >= found[row[0]][1]:
            found[row[0]] = row
    return found


def test_buses_of_each_route_now_that_are_faster_than_their_mean(spark, tmp_path):
    rows = []
    for seed in (1, 2):
        rows += write_files(tmp_path / "feed", "bus", "bus,ms,route,speed", 3, bus, seed)
        now = feed(spark, tmp_path / "feed", "bus", BUSES, "bus", coalesce=seed == 2)
        grouped = now.where("speed % 5 <> 1", on_leave="delete").group_by("route", shards=3)
        counted = grouped.agg(n=us.count(), speed=us.avg("speed"), most=us.max("speed"))
        buses = feed(spark, tmp_path / "feed", "bus", BUSES, "bus", coalesce=True)
        fast = counted.join(buses, on="route", condition="r.speed > l.speed", suffix="_bus", shards=3)
        write_to_end(fast, tmp_path / "table", tmp_path / "checkpoint")
        groups = {}
        for _, _, at, speed in newest(rows).values():
            if speed % 5 != 1:
                groups.setdefault(at, []).append(speed)
        found = read_frame(tmp_path / "table").select("bus", "route", "n", "speed", "most", "speed_bus").rows()
        means = {at: sum(speeds) / len(speeds) for at, speeds in groups.items()}
        assert sorted(found) == sorted(
            (bus, at, len(groups[at]), means[at], max(groups[at]), speed)
            for bus, _, at, speed in newest(rows).values()
            if at in groups and speed > means[at]
        )
