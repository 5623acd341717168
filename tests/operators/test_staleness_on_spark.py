"""Staleness out of a running query, against what the table's versions and the feed's arrivals say."""

import os
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import upstream
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP, system_array
from upstream.operators.capacity.staleness import StalenessAccount

pytestmark = pytest.mark.spark

KEYS, FILES, ROWS, BUDGET = 30, 4, 80, 8


class Feed:
    """Files of rows, one a batch, that arrived 50 ms after each other, the last of them just now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        n = FILES * ROWS
        self.key = np.random.default_rng(3).integers(0, KEYS, n)
        self.arrival_us = time.time_ns() // 1000 - np.arange(n)[::-1] * 50_000
        folder.mkdir()
        for number in range(FILES):
            part = slice(number * ROWS, (number + 1) * ROWS)
            seq = np.arange(n)[part]
            system = system_array(source="feed", seq=seq, arrival_us=self.arrival_us[part])
            rows = pa.table({"k": self.key[part], "t": seq, "n": seq, SYSTEM: system})
            pq.write_table(rows, folder / f"{number}.parquet")
            os.utime(folder / f"{number}.parquet", (number, number))  # Spark takes the oldest first

    def pending(self, shown: np.ndarray, rows: int) -> dict[int, int]:
        """Keys with updates beyond the row shown, among the first rows; and when the oldest such update arrived."""
        found: dict[int, int] = {}
        for n in range(rows):
            if n > shown[self.key[n]]:
                found.setdefault(int(self.key[n]), int(self.arrival_us[n]))
        return found


def nearest_rank(ages: np.ndarray, share: float) -> float:
    return float(np.sort(ages)[int(np.ceil(share * len(ages))) - 1])


def test_every_figure_is_what_the_table_and_the_feed_say(spark, tmp_path):
    feed = Feed(tmp_path / "feed")
    table, checkpoint, metrics = tmp_path / "table", tmp_path / "checkpoint", tmp_path / "metrics"
    ddl = upstream.with_system_ddl("k BIGINT, t BIGINT, n BIGINT")
    rows = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(feed.folder))

    def writer():
        queue = upstream.UpdateStream(rows, key="k", event_time="t").queue(
            checkpoint_location=checkpoint, policy="in-place", budget=BUDGET, shards=2, most_stale=5
        )
        return upstream.write_latest(
            queue.df,
            table,
            key="k",
            event_time="t",
            buckets=2,
            target="p99 < 1 ms",
            metricsLocation=metrics,
            checkpointLocation=checkpoint,
        )

    # One batch, and the next in an hour: rows wait, and the query stops.
    query = writer().trigger(processingTime="1 hour").start()
    while query.lastProgress is None and query.exception() is None:
        time.sleep(0.1)
    query.stop()
    assert query.exception() is None
    shown = np.full(KEYS, -1)
    first = DeltaTable(str(table)).to_pyarrow_table()
    shown[first.column("k").to_numpy()] = first.column("n").to_numpy()
    waiting = sorted((arrival, key) for key, arrival in feed.pending(shown, ROWS).items())
    stalest = upstream.most_stale(checkpoint, 5, now_us=waiting[0][0] + 7_000_000)
    assert stalest.column("k").to_pylist() == [key for _, key in waiting[:5]]
    assert stalest.column("first_arrival").cast(TIMESTAMP).cast(pa.int64()).to_pylist() == [at for at, _ in waiting[:5]]
    assert stalest.column("age_s").to_pylist()[0] == 7.0
    updates = [int((feed.key[:ROWS][feed.key[:ROWS] == key]).size) for _, key in waiting[:5]]
    assert stalest.column("covered").to_pylist() == updates

    # The rest, by a restarted query.
    query = writer().trigger(availableNow=True).start()
    query.awaitTermination(240)
    assert query.exception() is None
    commits = upstream.LatestTable(table).history()
    told = [upstream.batch_metrics(progress, table) for progress in query.recentProgress]
    by_batch = {summary.batch_id: summary for _, summary in commits}
    assert [each.commit for each in told if each and each.rows] == [
        by_batch[each.batch_id] for each in told if each and each.rows
    ]

    duckdb.register("staleness_metrics", DeltaTable(str(metrics)).to_pyarrow_dataset())
    got = duckdb.sql("from staleness_metrics order by batch_id").to_arrow_table().to_pylist()
    assert [row["batch_id"] for row in got] == [summary.batch_id for _, summary in commits]
    assert len(got) >= 5

    shown, begun_us, account = np.full(KEYS, -1), None, None
    for (version, summary), row in zip(commits, got, strict=True):
        committed_us = summary.committed_at_us
        read = min(summary.batch_id + 1, FILES) * ROWS
        stale = feed.pending(shown, read)
        now = DeltaTable(str(table), version).to_pyarrow_table()
        changed = now.filter(pa.array(now.column("n").to_numpy() > shown[now.column("k").to_numpy()]))
        keys = changed.column("k").to_numpy()
        shown[keys] = changed.column("n").to_numpy()
        arrived = np.array([stale[key] for key in keys.tolist()])
        ages = (committed_us - arrived) / 1e6
        expected = [len(keys), ages.mean(), nearest_rank(ages, 0.5), nearest_rank(ages, 0.99), ages.max()]
        names = ["delivered", *(f"staleness_{name}_s" for name in ("mean", "p50", "p99", "max"))]
        assert [row[name] for name in names] == pytest.approx(expected, abs=1e-6)
        waiting = feed.pending(shown, read)
        assert row["pending"] == len(waiting)
        oldest = (committed_us - min(waiting.values())) / 1e6 if waiting else None
        assert row["oldest_s"] == pytest.approx(oldest)
        assert row["queue_delivered"] == len(keys) <= BUDGET
        if summary.batch_id > 0:  # planned by a tick, whose clock all shards have
            dequeued = (summary.queue.clock_us - arrived) / 1e6
            assert row["queue_staleness_mean_s"] == pytest.approx(dequeued.mean())
            assert row["queue_staleness_p99_s"] == pytest.approx(nearest_rank(dequeued, 0.99), rel=0.046)
            assert row["batch_s"] == pytest.approx((committed_us - summary.queue.clock_us) / 1e6)
        assert (row["target"], row["target_met"]) == ("p99 < 1 ms", False)
        begun_us = committed_us - round(ages.max() * 1e6) if begun_us is None else begun_us
        account = account or StalenessAccount(KEYS, start_us=begun_us)
        account.deliver(keys, arrived, committed_us)

    # All of it was delivered once, or superseded.
    assert waiting == {}
    assert (
        sum(row["updates"] for row in got) == FILES * ROWS == sum(row["delivered"] + row["superseded"] for row in got)
    )
    run = upstream.LatestTable(table).staleness()
    assert (run.commits, run.delivered, run.pending, run.target_met) == (
        len(got),
        sum(r["delivered"] for r in got),
        0,
        0,
    )
    exact = account.finish(commits[-1][1].committed_at_us)
    assert run.over_time[0] <= exact.mean <= run.over_time[1]
    assert run.seconds == pytest.approx(exact.seconds)
