"""Windows over the newest row of each key, and over windows that are given again, on Spark, over restarts."""

from __future__ import annotations

import random

import polars as pl
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us

pytestmark = pytest.mark.spark


def stream_of(spark, folder):
    given = {"key": "bus", "maxFilesPerTrigger": 1, "time": "ms", "timeFormat": "epoch_ms", "progress": "bounded",
             "progressDelay": "60 ms"}  # fmt: skip
    rows = csv_feed(spark, f"{folder}/*.csv", "bus STRING, ms BIGINT, route STRING, speed BIGINT", **given)
    return us.UpdateStream(rows, key="bus", event_time="ms")


def test_buses_of_each_route_in_each_window(spark, tmp_path):
    chance = random.Random(7)
    rows = []
    for run in range(2):
        for number in range(3):
            more = [
                (f"b{chance.randrange(9)}", run * 300 + number * 100 + chance.randrange(140), f"r{chance.randrange(4)}",
                 len(rows) + at)
                for at in range(40)
            ]  # fmt: skip
            rows += more
            write_csv(tmp_path / "feed" / f"{run}{number}.csv", "bus,ms,route,speed", more)
        moving = stream_of(spark, tmp_path / "feed").where("speed % 5 <> 1", on_leave="delete")
        windows = moving.group_by("route", shards=3).window("100 ms", "50 ms", early=True, time_format="epoch_ms")
        found = windows.agg(n=us.count(), most=us.max("speed"))
        assert (found.key, found.event_time) == (("route", "window_id"), "window_time")
        write_to_end(found, tmp_path / "table", tmp_path / "checkpoint")
        newest = {}
        for bus, ms, route, speed in rows:
            for window in (ms // 50, ms // 50 + 1):
                if (bus, window) not in newest or ms >= newest[bus, window][0]:
                    newest[bus, window] = ms, route, speed
        groups = {}
        for (_, window), (_, route, speed) in newest.items():
            if speed % 5 != 1:
                groups.setdefault((route, window), []).append(speed)
        table = read_frame(tmp_path / "table")
        kept = {tuple(row[:2]): row[2:] for row in table.select("route", "window_id", "n", "most").rows()}
        assert kept == {name: (len(speeds), max(speeds)) for name, speeds in groups.items()}
        bounds = table.group_by("final").agg(pl.col("window_id").max(), pl.col("window_id").min().alias("least"))
        of = {row["final"]: row for row in bounds.rows(named=True)}
        assert of[True]["window_id"] < of[False]["least"]
    assert "windows of groups, group by route" in found.explain()


def test_windows_over_windows_that_are_given_again(spark, tmp_path):
    chance = random.Random(9)
    rows = [(f"b{chance.randrange(5)}", chance.randrange(600), "r", at) for at in range(120)]
    rows.sort(key=lambda row: row[1] + chance.randrange(50))
    for number in range(4):
        write_csv(tmp_path / "feed" / f"{number}.csv", "bus,ms,route,speed", rows[number * 30 : number * 30 + 30])
    stream = stream_of(spark, tmp_path / "feed")
    short = stream.window("50 ms", output="all", early=True, time_format="epoch_ms", shards=2).agg(n=us.count())
    long = short.window("200 ms", output="all", early=True, shards=3).agg(n=us.sum("n"))
    write_to_end(long, tmp_path / "table", tmp_path / "checkpoint")
    counts = {}
    for bus, ms, _, _ in rows:
        counts[bus, ms // 200] = counts.get((bus, ms // 200), 0) + 1
    kept = {
        tuple(row[:2]): row[2:]
        for row in read_frame(tmp_path / "table").select("bus", "window_id", "n", "final").rows()
    }
    finals = {name: n for name, (n, final) in kept.items() if final}
    assert finals
    assert finals.items() <= counts.items()
    assert all(n <= counts[name] for name, (n, _) in kept.items())
