"""Slow flush of windows on Spark: batches start by themselves and end."""

from __future__ import annotations

from pathlib import Path

import deltalake
import polars as pl
import pytest
from pyspark.sql import SparkSession

import upstream
from upstream import aggregates as agg
from upstream.core.feedback.checkpoint_layout import windows_folder
from upstream.core.feedback.report_files import read_reports
from upstream.core.feedback.window_reports import WindowReport

from . import sums

pytestmark = pytest.mark.spark


def add(feed: Path, name: str, window: int, keys: int) -> None:
    """A row of each key in a window of a second."""
    sums.add(feed, name, [(key, window * 1000 + key, key) for key in range(keys)])


def stream(spark: SparkSession, feed: Path) -> upstream.UpdateStream:
    counted = sums.read(spark, feed).window(
        "1 second", output="all", shards=2, time_format="epoch_ms", flush="slow", flush_rows=40
    )
    return counted.agg(n=agg.count(), total=agg.sum("v"))


def test_slow_flush_starts_batches_until_all_results_have_left(spark: SparkSession, tmp_path: Path) -> None:
    """300 results of one window, at most 40 in a batch; then nothing happens any more, and the query resumes."""
    place, feed = tmp_path / "place", tmp_path / "feed"
    add(feed, "a", 0, 300)
    add(feed, "b", 1, 300)  # its last row closes the first window
    key = {"key": ("k", "window_id"), "event_time": "window_time"}
    sums.finish(stream(spark, feed), place, **key)
    found = pl.from_arrow(deltalake.DeltaTable(str(place / "table")).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    assert sorted(found.select("k", "window_id", "n", "total").rows()) == [(k, 0, 1, k) for k in range(300)]
    history = [summary for _, summary in upstream.LatestTable(place / "table").history()]
    rows = [summary.rows for summary in history if summary.rows]
    assert sum(rows) == 300
    assert max(rows) <= 40
    assert len(rows) >= 8
    reports = read_reports(windows_folder(str(place / "checkpoint")), WindowReport)
    assert [(report.due, report.waiting) for report in reports] == [(0, 0), (0, 0)]
    before = deltalake.DeltaTable(str(place / "table")).version()
    sums.finish(stream(spark, feed), place, **key)
    assert deltalake.DeltaTable(str(place / "table")).version() == before
    add(feed, "c", 2, 300)
    sums.finish(stream(spark, feed), place, **key)
    found = deltalake.DeltaTable(str(place / "table")).to_pyarrow_table(columns=["k", "window_id", "n"])
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(
        (key, window, 1) for key in range(300) for window in (0, 1)
    )
