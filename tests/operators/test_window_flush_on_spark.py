"""Slow flush of windows on Spark: batches start by themselves and end."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from kit.tables import read_rows
from pyspark.sql import SparkSession

import upstream
from upstream import aggregates as agg
from upstream.core.feedback.checkpoint_layout import windows_folder
from upstream.core.feedback.report_files import read_reports
from upstream.core.feedback.window_reports import WindowReport

from . import sums

pytestmark = pytest.mark.spark


def add(feed: Path, window: int) -> None:
    sums.add(feed, str(window), [(key, window * 1000 + key, key) for key in range(300)])


def stream(spark: SparkSession, feed: Path) -> upstream.UpdateStream:
    counted = sums.read(spark, feed).window(
        "1 second", output="all", shards=2, time_format="epoch_ms", flush="slow", flush_rows=40
    )
    return counted.agg(n=agg.count(), total=agg.sum("v"))


def test_slow_flush_starts_batches_until_all_results_have_left(spark: SparkSession, tmp_path: Path) -> None:
    place, feed = tmp_path / "place", tmp_path / "feed"
    add(feed, 0)
    add(feed, 1)  # its last row closes the first window
    key = {"key": ("k", "window_id"), "event_time": "window_time"}
    sums.finish(stream(spark, feed), place, **key)
    assert read_rows(place / "table", "k", "window_id", "n", "total") == [(k, 0, 1, k) for k in range(300)]
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
    add(feed, 2)
    sums.finish(stream(spark, feed), place, **key)
    assert read_rows(place / "table", "k", "window_id", "n") == [
        (key, window, 1) for key in range(300) for window in (0, 1)
    ]
