"""Windows by other columns than the update key, on Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from kit.tables import read_frame
from pyspark.sql import SparkSession

from upstream import aggregates as agg

from . import sums

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("by", [("v",), ("k", "v")])
def test_each_group_has_windows_over_restarts(spark: SparkSession, tmp_path: Path, by: tuple[str, ...]) -> None:
    """Rows are shuffled by the group, and of the update key only what punctuation needs comes along."""
    feed, place = tmp_path / "feed", tmp_path / "place"
    rows = [(number * 5 % 7, number * 100, number % 3) for number in range(80)]
    for name, part in (("a", rows[:30]), ("b", rows[30:])):
        sums.add(feed, name, part)
        windows = sums.read(spark, feed).window("1 second", by=by, output="all", shards=4, time_format="epoch_ms")
        counted = windows.agg(n=agg.count())
        sums.finish(counted, place, key=(*by, "window_id"), event_time="window_time")
    assert counted.key == by
    groups = [(key, value)[2 - len(by) :] for key, _, value in rows]
    bound = rows[-1][1] - 1
    expected = Counter(
        (*group, ms // 1000) for group, (_, ms, _) in zip(groups, rows, strict=True) if (ms // 1000 + 1) * 1000 <= bound
    )
    found = read_frame(place / "table").select(*by, "window_id", "n").rows()
    assert {row[:-1]: row[-1] for row in found} == dict(expected)
    assert len(found) == len(expected) > 14
