"""Staleness out of a running query, against what the table's versions and the feed's arrivals say."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.queries import run_to_end
from kit.tables import read_by_key, read_table
from kit.waiting import wait_for
from pyspark.sql import SparkSession

import upstream
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP, system_array
from upstream.operators.capacity.staleness import StalenessAccount
from upstream.sink.figures.summary import CommitSummary

pytestmark = pytest.mark.spark

KEYS, FILES, ROWS, BUDGET = 30, 4, 80, 8
DDL = upstream.with_system_ddl("k BIGINT, t BIGINT, n BIGINT")

Shown = dict[int, int]
"""The number of the row that the table shows for each key."""


class Feed:
    """Files of rows, one a batch, that arrived 50 ms after each other, the last of them just now. A row's number is its
    time too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        n = FILES * ROWS
        self.key = np.random.default_rng(3).integers(0, KEYS, n).tolist()
        self.arrival_us = (time.time_ns() // 1000 - np.arange(n)[::-1] * 50_000).tolist()
        folder.mkdir()
        for number in range(FILES):
            part = slice(number * ROWS, (number + 1) * ROWS)
            seq = np.arange(n)[part]
            system = system_array(source="feed", seq=seq, arrival_us=np.array(self.arrival_us[part]))
            rows = pa.table({"k": self.key[part], "t": seq, "n": seq, SYSTEM: system})
            pq.write_table(rows, folder / f"{number}.parquet")
            os.utime(folder / f"{number}.parquet", (number, number))  # Spark takes the oldest first

    def stale(self, shown: Shown, files: int) -> dict[int, int]:
        """Keys with an update in the first files that the table does not show, and that update's earliest arrival."""
        found: dict[int, int] = {}
        for n in range(files * ROWS):
            if n > shown.get(self.key[n], -1):
                found.setdefault(self.key[n], self.arrival_us[n])
        return found


@dataclasses.dataclass(frozen=True)
class Moment:
    """A commit, by the table's own versions and the feed: which keys it made fresh, and which were stale after it."""

    summary: CommitSummary
    metrics: dict[str, Any]
    freshened: dict[int, int]  # keys, and since when they had been stale
    waiting: dict[int, int]

    def ages_s(self, at_us: int) -> np.ndarray:
        """How long the keys that were made fresh had been stale, at a time."""
        return (at_us - np.array(list(self.freshened.values()))) / 1e6


@dataclasses.dataclass
class Run:
    """A query with a queue that serves a few keys a batch: stopped after one batch, and let run to its end."""

    folder: Path
    feed: Feed

    def __post_init__(self) -> None:
        self.table, self.metrics, self.checkpoint = (self.folder / name for name in ("table", "metrics", "checkpoint"))

    def writer(self, spark: SparkSession) -> Any:
        rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(self.feed.folder))
        queued = upstream.UpdateStream(rows, key="k", event_time="t").queue(
            policy="in-place", budget=BUDGET, shards=2, most_stale=5
        )
        return upstream.write_latest(
            queued, self.table, buckets=2, target="p99 < 1 ms", metricsLocation=self.metrics,
            checkpointLocation=self.checkpoint,
        )  # fmt: skip

    def stop_after_a_batch(self, spark: SparkSession) -> None:
        query = self.writer(spark).trigger(processingTime="1 hour").start()
        wait_for(lambda: query.lastProgress is not None, query.exception)
        query.stop()
        self.after_a_batch = self.feed.stale(read_by_key(self.table, "k", "n"), files=1)
        since_us = min(self.after_a_batch.values())
        self.most_stale = upstream.most_stale(self.checkpoint, 5, now_us=since_us + 7_000_000)

    def finish(self, spark: SparkSession) -> None:
        self.progress = run_to_end(self.writer(spark)).recentProgress

    def moments(self) -> Iterator[Moment]:
        metrics = {row["batch_id"]: row for row in read_table(self.metrics).to_pylist()}
        shown: Shown = {}
        for version, summary in upstream.LatestTable(self.table).history():
            files = min(summary.batch_id + 1, FILES)
            stale, now = self.feed.stale(shown, files), read_by_key(self.table, "k", "n", version=version)
            freshened = {key: stale[key] for key, n in now.items() if n > shown.get(key, -1)}
            yield Moment(summary, metrics.pop(summary.batch_id), freshened, self.feed.stale(now, files))
            shown = now
        assert metrics == {}, "there are figures of batches that were not committed"


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("staleness")
    made = Run(folder, Feed(folder / "feed"))
    made.stop_after_a_batch(spark)
    made.finish(spark)
    return made


@pytest.fixture(scope="module")
def moments(run: Run) -> list[Moment]:
    found = list(run.moments())
    assert len(found) >= 5
    return found


def nearest_rank(ages: np.ndarray, share: float) -> float:
    return float(np.sort(ages)[int(np.ceil(share * len(ages))) - 1])


def test_the_most_stale_keys_are_those_that_have_waited_longest(run: Run) -> None:
    longest = sorted(run.after_a_batch, key=run.after_a_batch.__getitem__)[:5]
    found = run.most_stale
    assert found.column("k").to_pylist() == longest
    since_us = found.column("first_arrival").cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    assert since_us == [run.after_a_batch[key] for key in longest]
    assert found.column("age_s").to_pylist()[0] == 7.0
    assert found.column("covered").to_pylist() == [run.feed.key[:ROWS].count(key) for key in longest]


def test_the_progress_of_the_query_has_the_figures_of_its_commits(run: Run, moments: list[Moment]) -> None:
    commits = {moment.summary.batch_id: moment.summary for moment in moments}
    given = [upstream.batch_metrics(progress, run.table) for progress in run.progress]
    with_rows = [each for each in given if each and each.rows]
    assert with_rows
    assert [each.commit for each in with_rows] == [commits[each.batch_id] for each in with_rows]


def test_the_staleness_of_a_commit_is_that_of_the_keys_that_it_has_freshened(moments: list[Moment]) -> None:
    names = ["delivered", *(f"staleness_{name}_s" for name in ("mean", "p50", "p99", "max"))]
    for moment in moments:
        ages = moment.ages_s(moment.summary.committed_at_us)
        expected = [len(ages), ages.mean(), nearest_rank(ages, 0.5), nearest_rank(ages, 0.99), ages.max()]
        assert [moment.metrics[name] for name in names] == pytest.approx(expected, abs=1e-6)


def test_what_waits_after_a_commit_is_counted_with_the_age_of_its_oldest(moments: list[Moment]) -> None:
    for moment in moments:
        assert moment.metrics["pending"] == len(moment.waiting)
        oldest_us = min(moment.waiting.values(), default=None)
        oldest_s = None if oldest_us is None else (moment.summary.committed_at_us - oldest_us) / 1e6
        assert moment.metrics["oldest_s"] == pytest.approx(oldest_s)
    assert len(moments[0].waiting) > 0
    assert moments[-1].waiting == {}


def test_the_queues_figures_are_as_of_the_tick_that_planned_the_batch(moments: list[Moment]) -> None:
    assert all(moment.metrics["queue_delivered"] == len(moment.freshened) <= BUDGET for moment in moments)
    for moment in moments:
        if moment.summary.batch_id == 0:
            continue  # it was planned without a tick, and each shard has a clock of its own
        ages = moment.ages_s(moment.summary.queue.clock_us)
        assert moment.metrics["queue_staleness_mean_s"] == pytest.approx(ages.mean())
        assert moment.metrics["queue_staleness_p99_s"] == pytest.approx(nearest_rank(ages, 0.99), rel=0.046)
        batch_s = (moment.summary.committed_at_us - moment.summary.queue.clock_us) / 1e6
        assert moment.metrics["batch_s"] == pytest.approx(batch_s)


def test_a_target_that_is_missed_is_reported_with_each_commit_and_of_the_run(run: Run, moments: list[Moment]) -> None:
    reported = {(moment.metrics["target"], moment.metrics["target_met"]) for moment in moments}
    assert reported == {("p99 < 1 ms", False)}
    assert upstream.LatestTable(run.table).staleness().target_met == 0


def test_each_update_is_delivered_or_superseded_once(run: Run, moments: list[Moment]) -> None:
    metrics = [moment.metrics for moment in moments]
    assert sum(row["updates"] for row in metrics) == FILES * ROWS
    assert sum(row["delivered"] + row["superseded"] for row in metrics) == FILES * ROWS
    whole = upstream.LatestTable(run.table).staleness()
    delivered = sum(row["delivered"] for row in metrics)
    assert (whole.commits, whole.delivered, whole.pending) == (len(moments), delivered, 0)


def test_the_bounds_of_the_staleness_over_time_hold_the_exact_one(run: Run, moments: list[Moment]) -> None:
    first = moments[0]
    begun_us = first.summary.committed_at_us - round(first.ages_s(first.summary.committed_at_us).max() * 1e6)
    account = StalenessAccount(KEYS, start_us=begun_us)
    for moment in moments:
        keys, since_us = (np.array(list(each)) for each in (moment.freshened.keys(), moment.freshened.values()))
        account.deliver(keys, since_us, moment.summary.committed_at_us)
    exact = account.finish(moments[-1].summary.committed_at_us)

    whole = upstream.LatestTable(run.table).staleness()
    least, most = whole.over_time
    assert least <= exact.mean <= most
    assert whole.seconds == pytest.approx(exact.seconds)
