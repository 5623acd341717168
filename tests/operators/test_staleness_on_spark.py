"""Staleness out of a running query, against what the table's versions and the feed's arrivals say."""

import os
import time
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

pytestmark = pytest.mark.spark

KEYS, FILES, ROWS, BUDGET = 30, 4, 80, 8
DDL = upstream.with_system_ddl("k BIGINT, t BIGINT, n BIGINT")

Shown = dict[int, int]
"""The number of the row that the table shows for each key."""


class Feed:
    """Files of rows that arrived 50 ms after each other, the last of them just now; a row's number is its time too."""

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


class Run:
    """A query with a queue that serves a few keys a batch: stopped after one batch, and let run to its end."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feed = Feed(folder / "feed")
        self.table, self.metrics, self.checkpoint = (folder / name for name in ("table", "metrics", "checkpoint"))
        query = self.writer(spark).trigger(processingTime="1 hour").start()
        wait_for(lambda: query.lastProgress is not None, query.exception)
        query.stop()
        self.after_a_batch = self.feed.stale(read_by_key(self.table, "k", "n"), files=1)
        since_us = min(self.after_a_batch.values())
        self.stalest_keys = upstream.stalest_keys(self.checkpoint, 5, now_us=since_us + 7_000_000)
        self.progress = run_to_end(self.writer(spark)).recentProgress

    def writer(self, spark: SparkSession) -> Any:
        rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(self.feed.folder))
        queued = upstream.UpdateStream(rows, key="k", event_time="t").queue(
            policy="in-place", budget=BUDGET, shards=2, stalest_keys=5
        )
        return upstream.write_latest(
            queued, self.table, buckets=2, target="p99 < 1 ms", metrics_location=self.metrics,
            checkpoint=self.checkpoint,
        )  # fmt: skip


@pytest.fixture(scope="module")
def run(spark, tmp_path_factory):
    return Run(spark, tmp_path_factory.mktemp("staleness"))


def nearest_rank(ages: np.ndarray, share: float) -> float:
    return float(np.sort(ages)[int(np.ceil(share * len(ages))) - 1])


def test_the_most_stale_keys_are_those_that_have_waited_longest(run):
    longest = sorted(run.after_a_batch, key=run.after_a_batch.__getitem__)[:5]
    found = run.stalest_keys
    assert found.column("k").to_pylist() == longest
    since_us = found.column("first_arrival").cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    assert since_us == [run.after_a_batch[key] for key in longest]
    assert found.column("age_s").to_pylist()[0] == 7.0
    assert found.column("covered").to_pylist() == [run.feed.key[:ROWS].count(key) for key in longest]


def test_the_progress_of_the_query_has_the_figures_of_its_commits(run):
    commits = {summary.batch_id: summary for _, summary in upstream.LatestTable(run.table).commits()}
    given = [upstream.LatestTable(run.table).batch_metrics(progress) for progress in run.progress]
    with_rows = [each for each in given if each and each.rows]
    assert with_rows
    assert [each.commit for each in with_rows] == [commits[each.batch_id] for each in with_rows]


def test_figures_are_those_of_the_tables_versions_and_of_what_had_arrived(run):
    metrics = {row["batch_id"]: row for row in read_table(run.metrics).to_pylist()}
    history = upstream.LatestTable(run.table).commits()
    assert metrics.keys() == {summary.batch_id for _, summary in history}
    shown: Shown = {}
    account = None
    for version, summary in history:
        figures, at_us, files = metrics[summary.batch_id], summary.committed_at_us, min(summary.batch_id + 1, FILES)
        stale, now = run.feed.stale(shown, files), read_by_key(run.table, "k", "n", version=version)
        since_us = np.array([stale[key] for key, n in now.items() if n > shown.get(key, -1)])
        keys = np.array([key for key, n in now.items() if n > shown.get(key, -1)])
        waiting, shown = run.feed.stale(now, files), now

        # Of the keys that the commit has freshened, how long they had been stale.
        ages = (at_us - since_us) / 1e6
        expected = [len(ages), ages.mean(), nearest_rank(ages, 0.5), nearest_rank(ages, 0.99), ages.max()]
        names = ["applied", *(f"staleness_{name}_s" for name in ("mean", "p50", "p99", "max"))]
        assert [figures[name] for name in names] == pytest.approx(expected, abs=1e-6)
        # What waits after it, with the age of its oldest.
        assert figures["pending"] == len(waiting)
        oldest_s = None if not waiting else (at_us - min(waiting.values())) / 1e6
        assert figures["oldest_s"] == pytest.approx(oldest_s)
        # The queue's, as of the tick that planned the batch; the first was planned without one.
        assert figures["queue_applied"] == len(ages) <= BUDGET
        if summary.batch_id:
            ages = (summary.queue.clock_us - since_us) / 1e6
            assert figures["queue_staleness_mean_s"] == pytest.approx(ages.mean())
            assert figures["queue_staleness_p99_s"] == pytest.approx(nearest_rank(ages, 0.99), rel=0.046)
            assert figures["batch_s"] == pytest.approx((at_us - summary.queue.clock_us) / 1e6)
        assert (figures["target"], figures["target_met"]) == ("p99 < 1 ms", False)
        account = account or StalenessAccount(KEYS, start_us=int(since_us.min()))
        account.deliver(keys, since_us, at_us)
    assert waiting == {}

    whole = upstream.LatestTable(run.table).staleness()
    applied, superseded = (sum(row[name] for row in metrics.values()) for name in ("applied", "superseded"))
    assert applied + superseded == sum(row["updates"] for row in metrics.values()) == FILES * ROWS
    assert (whole.commits, whole.applied, whole.pending, whole.target_met) == (len(metrics), applied, 0, 0)
    exact = account.finish(at_us)
    assert whole.over_time[0] <= exact.mean <= whole.over_time[1]
    assert whole.seconds == pytest.approx(exact.seconds)
