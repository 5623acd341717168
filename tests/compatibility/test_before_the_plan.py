"""Tables and checkpoints that the release before the plan left in the middle of their jobs go on, with the checkpoint
named once.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from kit.queries import write_to_end
from kit.tables import read_frame
from pyspark.sql import SparkSession

import upstream
from upstream import aggregates as agg

pytestmark = pytest.mark.spark

DATA = Path(__file__).with_name("before_the_plan") / "data.tar.xz"
ROOT = Path("/tmp/upstream-before")
"""Where the jobs ran: a checkpoint holds the paths of its feeds."""

Rows = list[tuple[int, int, str]]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """What `made_by.py` left, and beside what the feeds had the files that were to come."""
    shutil.rmtree(ROOT, ignore_errors=True)
    with tarfile.open(DATA) as archive:
        archive.extractall(ROOT.parent, filter="data")
    for later in (ROOT / "later").rglob("*.csv"):
        shutil.copy(later, ROOT / "feeds" / later.relative_to(ROOT / "later"))
    yield ROOT
    # Spark may still tidy a state of a query that has stopped; what it leaves goes before the next run.
    shutil.rmtree(ROOT, ignore_errors=True)


def rows(feed: Path) -> Rows:
    found: Rows = []
    for file in sorted(feed.glob("*.csv")):
        for line in file.read_text().splitlines()[1:]:
            k, ms, v = line.split(",")
            found.append((int(k), int(ms), v))
    return found


def newest(found: Rows) -> dict[int, tuple[int, str]]:
    kept: dict[int, tuple[int, str]] = {}
    for k, ms, v in found:
        if k not in kept or ms >= kept[k][0]:
            kept[k] = (ms, v)
    return kept


def read(spark: SparkSession, root: Path, feed: str, job: str, **options: str) -> upstream.UpdateStream:
    df = (
        spark.readStream.format("upstream")
        .options(path=str(root / "feeds" / feed), key="k", time="ms", timeFormat="epoch_ms", progressDelay="1 second")
        .options(schema="k BIGINT, ms BIGINT, v STRING", atEnd="keep", maxFilesPerTrigger="1", **options)
        .option("checkpointLocation", str(root / "checkpoints" / job))
        .load()
    )
    return upstream.UpdateStream(df, key="k", event_time="ms")


def finish(stream: upstream.UpdateStream, root: Path, job: str, **more: str) -> pl.DataFrame:
    table, checkpoint = root / "tables" / job, root / "checkpoints" / job
    begun = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    query = write_to_end(stream, table, checkpoint, buckets=2, **more)
    assert min(each.batchId for each in query.recentProgress) > begun, "it did not go on, but begin"
    return read_frame(table)


def test_latest(spark: SparkSession, root: Path) -> None:
    stream = read(spark, root, "latest", "latest", coalesce="true").where("v NOT LIKE '%77'", on_leave="delete")
    found = finish(stream, root, "latest", metricsLocation=str(root / "tables" / "latest-metrics"))
    expected = {(k, ms, v) for k, (ms, v) in newest(rows(root / "feeds" / "latest")).items() if not v.endswith("77")}
    assert set(found.select("k", "ms", "v").iter_rows()) == expected
    metrics = DeltaTable(str(root / "tables" / "latest-metrics")).to_pyarrow_table().column("batch_id").to_pylist()
    assert sorted(metrics) == list(range(len(metrics)))


def test_windows_over_windows(spark: SparkSession, root: Path) -> None:
    stream = read(spark, root, "windows", "windows")
    first = stream.window("10 seconds", "5 seconds", output="all", shards=2, time_format="epoch_ms")
    second = first.agg(n=agg.count(), last=agg.max_("v")).window("30 seconds", output="all", shards=2)
    every = upstream.UpdateStream(
        second.agg(n=agg.sum_("n"), windows=agg.count()).dataframe(root / "checkpoints" / "windows"),
        key=("k", "window_id"),
        event_time="window_end",
    )
    found = finish(every, root, "windows")

    came = rows(root / "feeds" / "windows")
    bound = max(ms for _, ms, _ in came) - 1000
    counts: dict[tuple[int, int], int] = {}
    for k, ms, _ in came:
        for end in range(ms // 5000 * 5000 + 5000, ms + 10_001, 5000):
            counts[k, end] = counts.get((k, end), 0) + 1
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for (k, end), count in counts.items():
        outer = -(-end // 30_000) - 1
        if (outer + 1) * 30_000 <= bound:
            n, windows = expected.get((k, outer), (0, 0))
            expected[k, outer] = (n + count, windows + 1)
    got = {(row["k"], row["window_id"]): (row["n"], row["windows"]) for row in found.iter_rows(named=True)}
    assert got == expected


def test_merge_and_distinct(spark: SparkSession, root: Path) -> None:
    one, two = (read(spark, root, feed, "merged") for feed in ("merged", "merged-other"))
    found = finish(one.merge(two, shards=2).distinct("k", "v", shards=2), root, "merged")
    sides = [rows(root / "feeds" / feed) for feed in ("merged", "merged-other")]
    bound = min(max(ms for _, ms, _ in side) for side in sides) - 1000
    released = [row for side in sides for row in side if row[1] <= bound]
    assert {row[1] for row in released} != {row[1] for side in sides for row in side}, "some are still held"
    expected = {(k, ms, v) for k, (ms, v) in newest(released).items()}
    assert set(found.select("k", "ms", "v").iter_rows()) == expected


def test_rows_that_waited_in_a_queue(spark: SparkSession, root: Path) -> None:
    assert DeltaTable(str(root / "tables" / "queue")).to_pyarrow_table().num_rows < 40, "rows wait"
    stream = read(spark, root, "queue", "queue").queue(policy="linecutting", budget=6, shards=2)
    found = finish(stream, root, "queue")
    expected = {(k, ms, v) for k, (ms, v) in newest(rows(root / "feeds" / "queue")).items()}
    assert set(found.select("k", "ms", "v").iter_rows()) == expected
