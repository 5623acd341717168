"""Latest tables in a chain, as users write them: windows kept by one query, followed by others that stop and go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from kit.feeds import write_csv
from kit.queries import write_to_end
from kit.tables import read_rows
from pyspark.errors import StreamingQueryException

import upstream
from upstream import aggregates as agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def once(stream: Any, table: Path, **options: Any) -> None:
    """A query that takes what is there, and ends."""
    checkpoint = str(table) + "_checkpoint"
    write_to_end(stream, table, checkpoint, buckets=4, **options)


def write_rows(file: Path, rows: list[tuple[str, int, int]]) -> None:
    """Key, seconds, value."""
    timed = [(key, f"2024-01-01 00:{second // 60:02d}:{second % 60:02d}", value) for key, second, value in rows]
    write_csv(file, "k,t,v", timed)


def counted(rows: DataFrame, of: str, width: str, checkpoint: str) -> Any:
    """Windows of all rows, per key."""
    stream = upstream.UpdateStream(rows, key="k", event_time=of)
    return stream.window(width, output="all", checkpoint_location=checkpoint)


@pytest.mark.long
def test_windows_kept_by_one_query_are_followed_by_others(spark: SparkSession, tmp_path: Path) -> None:
    feed, every, newest, wide = (tmp_path / name for name in ("feed", "every", "newest", "wide"))

    def first() -> None:
        rows = spark.readStream.format("upstream").options(key="k", time="t", progress="ordered").load(str(feed))
        results = counted(rows, "t", "10 seconds", f"{every}_checkpoint").agg(n=agg.count(), total=agg.sum_("v"))
        once(results, every, key=("k", "window_id"), time="window_time")

    def second() -> None:
        once(upstream.latest(spark, str(every), key="k", connector="latest"), newest, key="k", time="window_time")

    def third() -> None:
        rows = spark.readStream.format("upstream").options(connector="latest", key="k").load(str(every))
        rows = rows.drop("window_start", "window_end", "window_id", "final")
        results = counted(rows, "window_time", "30 seconds", f"{wide}_checkpoint").agg(n=agg.sum_("n"))
        once(results, wide, key=("k", "window_id"), time="window_time")

    for number, start in enumerate((0, 40, 80)):
        write_rows(feed / f"{number}.csv", [(key, second, 1) for second in range(start, start + 40) for key in "ab"])
        first()
        # Started anew each time: it goes on where it was.
        second()
        third()
    # The last row is of second 119: the window that ends then is open.
    closed = [(key, second // 10) for second in range(0, 110, 10) for key in "ab"]
    assert [row[0::2] for row in read_rows(every, "k", "n", "total")] == [(key, 10) for key, _ in sorted(closed)]
    ends = read_rows(every, "k", "window_end")
    assert read_rows(newest, "k", "window_end") == [max(end for end in ends if end[0] == key) for key in "ab"]
    # A result's time lies within its window, so the three windows of one half minute are counted together. The first
    # table promises no more than that no result before 110 s is to come, so the last half minute is open.
    assert read_rows(wide, "k", "n") == [(key, 30) for key in "ab" for _ in range(3)]


def test_a_query_that_follows_reports_files_that_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    feed, table, follower = (tmp_path / name for name in ("feed", "table", "follower"))

    def first() -> None:
        once(upstream.latest(spark, str(feed), key="k", event_time="t"), table, key="k", time="t")

    def second() -> None:
        once(upstream.latest(spark, str(table), key="k", connector="latest"), follower, key="k", time="t")

    for number in range(4):
        write_rows(feed / f"{number}.csv", [("a", number, number), (f"b{number}", 0, 0)])
        first()
        if number == 0:
            second()
    DeltaTable(str(table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(StreamingQueryException, match="is gone before it was read"):
        second()
    shutil.rmtree(f"{follower}_checkpoint")
    second()
    assert read_rows(follower, "k", "v") == read_rows(table, "k", "v")
    batch = spark.read.format("upstream").options(connector="latest").load(str(table))
    assert sorted((row.k, row.v) for row in batch.collect()) == read_rows(table, "k", "v")
