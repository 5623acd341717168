"""Late rows as a stream of their own, in a second query: each once, whatever the first query runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kit.queries import run_to_end
from kit.tables import read_frame
from pyspark.sql import SparkSession

import upstream
from upstream import aggregates as agg

from . import sums

pytestmark = pytest.mark.spark


def main_query(spark: SparkSession, feed: Path, place: Path) -> upstream.UpdateStream:
    counted = sums.read(spark, feed).window(
        "1 second", output="all", shards=2, time_format="epoch_ms", late_location=place / "late"
    )
    return counted.agg(n=agg.count())


def count_late(stream: upstream.UpdateStream, place: Path) -> dict[tuple[int, int], int]:
    """How often each late row has come."""
    late = stream.late_rows(watermark=upstream.Watermark.bounded("1 day"))
    assert (late.key, late.event_time) == (("k",), "ms")
    counted = late.window("1 ms", by=("k", "v"), output="all", early=True, shards=2, time_format="epoch_ms")
    writer = counted.agg(n=agg.count()).write(
        place / "late_table", key=("k", "v", "window_id"), checkpoint=place / "late_checkpoint"
    )
    run_to_end(writer)
    found = read_frame(place / "late_table")
    return dict(zip(found.select("k", "v").rows(), found["n"].to_list(), strict=True))


def run_again(checkpoint: Path) -> None:
    """Let the last batch seem not to have been committed, as after a crash between the table and Spark's own log."""
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for each in (checkpoint / "commits" / str(last), checkpoint / "commits" / f".{last}.crc"):
        each.unlink()


def test_each_late_row_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    feed, place = tmp_path / "feed", tmp_path / "place"
    sums.add(feed, "a", [(key, 5000, 100 + key) for key in range(5)])
    stream = main_query(spark, feed, place)
    more: dict[str, Any] = {"key": ("k", "window_id"), "event_time": "window_time"}
    sums.finish(stream, place, **more)
    sums.add(feed, "b", [(key, 1000, key) for key in range(4)])
    sums.finish(main_query(spark, feed, place), place, **more)
    assert count_late(stream, place) == {(key, key): 1 for key in range(4)}
    files = {each: each.read_bytes() for each in (place / "late").glob("*.parquet")}
    written = {each: each.stat().st_mtime_ns for each in files}
    run_again(place / "checkpoint")
    sums.add(feed, "c", [(key, 1500, 10 + key) for key in range(3)])
    sums.finish(main_query(spark, feed, place), place, **more)
    assert any(each.stat().st_mtime_ns != written[each] for each in files), "the batch ran again"
    assert {each: each.read_bytes() for each in files} == files
    assert count_late(stream, place) == {(key, key): 1 for key in range(4)} | {(key, 10 + key): 1 for key in range(3)}


def test_a_late_tombstone_stays_one(spark: SparkSession, tmp_path: Path) -> None:
    """What an ordered release refuses may be a deletion: it deletes its key in a table of late rows, too."""
    feed, place = tmp_path / "feed", tmp_path / "place"
    sums.add(feed, "a", [(1, 1000, 5), *((key, 9000 + key, 6) for key in range(1, 9))])

    def released() -> upstream.UpdateStream:
        kept = sums.read(spark, feed).where("v > 0", on_leave="delete")
        return kept.ordered(shards=1, time_format="epoch_ms", late_location=place / "late")

    sums.finish(released(), place)
    sums.add(feed, "b", [(1, 2000, 7), (2, 2100, 8), (1, 3000, -1)])
    sums.finish(released(), place)
    run_to_end(released().late_rows().write(place / "late_table", checkpoint=place / "late_checkpoint"))
    assert read_frame(place / "late_table").select("k", "ms", "v").rows() == [(2, 2100, 8)]
    late = pl.concat([pl.read_parquet(each) for each in (place / "late").glob("*.parquet")])
    assert late.height == 3
