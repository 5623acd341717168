"""Windows of every kind on Spark, all in one query, against windows computed row by row."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import deltalake
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import upstream
from upstream.operators.aggregates.functions import count, sum_

pytestmark = pytest.mark.spark

HOUR, DAY = 3_600_000, 86_400_000
DELAY_MS = HOUR
# Friday to Wednesday: on Sunday the clocks of Paris go from two to three, at 1:00 UTC.
FIRST_MS = round(datetime(2024, 3, 29, tzinfo=timezone.utc).timestamp() * 1000)
Row = tuple[str, int, int]
Window = tuple[str, int, int]
"""A key, and the ends of a window in milliseconds, or in row numbers."""


def write_feeds(folder: Path) -> list[Row]:
    """Five files of a day each, with disorder below the delay."""
    chance, rows = random.Random(7), list[Row]()
    for number in range(5):
        at = sorted(chance.randrange(number * DAY, (number + 1) * DAY) for _ in range(60))
        mine = [
            (f"k{chance.randrange(4)}", FIRST_MS + max(0, each - chance.randrange(DELAY_MS)), chance.randrange(-50, 50))
            for each in at
        ]
        write_csv(folder / f"part-{number}.csv", "key,ms,value", mine)
        rows += mine
    return rows


KINDS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "eager": ("6 hours", "2 hours", {"output": "eager"}),
    "landmark": ("all", "8 hours", {"output": "all"}),
    "rows": ("10 rows", "4 rows", {"output": "all"}),
    "row": ("3 hours", "1 row", {"output": "all"}),
    "third row": ("3 hours", "3 rows", {"output": "all"}),
    "third to arrive": ("3 hours", "3 rows", {"output": "all", "order": "arrival"}),
    "rows of all": ("40 rows", "15 rows", {"output": "all", "of": "stream"}),
    "calendar": ("1 day", None, {"output": "all", "zone": "Europe/Paris"}),
}


def results(stream: upstream.UpdateStream, kind: str, checkpoint: Path) -> DataFrame:
    """Of one kind, with ends as numbers, so that those of time and those of rows fit one table."""
    duration, slide, options = KINDS[kind]
    given = {"time_format": "epoch_ms", "shards": 2, "checkpoint_location": checkpoint / kind, **options}
    found = stream.window(duration, slide, **given).agg(n=count(), total=sum_("value")).df

    def number(name: str) -> Any:
        return F.col(name).cast("bigint") if kind.startswith("rows") else F.unix_millis(name)

    ends = [number(name).alias(name) for name in ("window_start", "window_end")]
    time = F.col("window_id").alias("time")
    return found.select(F.lit(kind).alias("kind"), "key", "window_id", *ends, time, "final", "n", "total", "_upstream")


def sums(placed: dict[Window, list[int]]) -> dict[Window, tuple[int, int]]:
    return {window: (len(values), sum(values)) for window, values in placed.items()}


def by_length(rows: list[Row], length: int, slide: int, bound: int) -> dict[Window, tuple[int, int]]:
    placed: dict[Window, list[int]] = defaultdict(list)
    for key, ms, value in rows:
        end = (ms // slide + 1) * slide
        while end - length <= ms:
            if end <= bound:
                placed[key, end - length, end].append(value)
            end += slide
    return sums(placed)


def landmark(rows: list[Row], slide: int, bound: int) -> dict[Window, tuple[int, int]]:
    placed: dict[Window, list[int]] = defaultdict(list)
    for key, ms, value in rows:
        for end in range((ms // slide + 1) * slide, bound + 1, slide):
            placed[key, 0, end].append(value)
    return sums(placed)


def by_rows(rows: list[Row], length: int, slide: int) -> dict[Window, tuple[int, int]]:
    found: dict[Window, list[int]] = {}
    for key in {row[0] for row in rows}:
        mine = [value for other, _, value in rows if other == key]
        for end in range(slide, len(mine) + 1, slide):
            found[key, end - length, end] = mine[max(end - length, 0) : end]
    return sums(found)


def by_row(rows: list[Row], length: int, bound: int) -> dict[Window, tuple[int, int]]:
    found: dict[Window, list[int]] = {}
    for key, ms, _ in rows:
        if ms < bound:
            found[key, ms - length, ms] = [v for other, at, v in rows if other == key and ms - length < at <= ms]
    return sums(found)


def by_rows_of_all(rows: list[Row], length: int, slide: int) -> dict[Window, tuple[int, int]]:
    found = defaultdict[Window, list[int]](list)
    for end in range(slide, len(rows) + 1, slide):
        for key, _, value in rows[max(end - length, 0) : end]:
            found[key, end - length, end].append(value)
    return sums(found)


def by_third_row(rows: list[Row], length: int, bound: int, *, by_time: bool) -> dict[Window, tuple[int, int]]:
    each = by_row(rows, length, bound)
    found: dict[Window, tuple[int, int]] = {}
    for key in {row[0] for row in rows}:
        times = [ms for other, ms, _ in rows if other == key]
        for ms in (sorted(times) if by_time else times)[2::3]:
            if ms < bound:
                found[key, ms - length, ms] = each[key, ms - length, ms]
    return found


def in_paris(rows: list[Row], bound: int) -> dict[Window, tuple[int, int]]:
    zone, placed = ZoneInfo("Europe/Paris"), defaultdict[Window, list[int]](list)
    for key, ms, value in rows:
        day = datetime.fromtimestamp(ms / 1000, zone).date()
        begin, end = (
            round(datetime(each.year, each.month, each.day, tzinfo=zone).timestamp() * 1000)
            for each in (day, day + timedelta(days=1))
        )
        if end <= bound:
            placed[key, begin, end].append(value)
    return sums(placed)


def test_every_kind_of_window_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    rows = write_feeds(tmp_path / "feed")
    feed = csv_feed(
        spark, tmp_path / "feed", progressDelay="1 hour", confirmations=1, maxFilesPerTrigger=2, lastLine="complete"
    )
    stream = upstream.UpdateStream(feed, key="key", event_time="ms")
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "table"
    frames = [results(stream, kind, checkpoint) for kind in KINDS]
    together = frames[0]
    for frame in frames[1:]:
        together = together.unionByName(frame)
    keyed = upstream.UpdateStream(together, key=("kind", "key", "window_id"), event_time="time")
    write_to_end(keyed, table, checkpoint, buckets=2)
    got: dict[str, dict[Window, tuple[int, int]]] = defaultdict(dict)
    for row in deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist():
        assert row["final"]
        at = row["key"], row["window_start"] or 0, row["window_end"]
        got[row["kind"]][at] = row["n"], row["total"]
    bound = max(ms for _, ms, _ in rows) - DELAY_MS
    assert got["landmark"] == landmark(rows, 8 * HOUR, bound)
    assert got["rows"] == by_rows(rows, 10, 4)
    assert got["row"] == by_row(rows, 3 * HOUR, bound)
    assert got["third row"] == by_third_row(rows, 3 * HOUR, bound, by_time=True)
    assert got["third to arrive"] == by_third_row(rows, 3 * HOUR, bound, by_time=False) != got["third row"]
    assert got["rows of all"] == by_rows_of_all(rows, 40, 15)
    days = in_paris(rows, bound)
    assert got["calendar"] == days
    assert {end - begin for _, begin, end in days} == {23 * HOUR, 24 * HOUR}
    every = by_length(rows, 6 * HOUR, 2 * HOUR, bound)
    assert got["eager"].items() <= every.items(), "what eager gives is right"
    for key in {row[0] for row in rows}:
        mine = sorted(end for other, _, end in got["eager"] if other == key)
        assert 1 < len(mine) < sum(window[0] == key for window in every), "and it passes over some windows"
