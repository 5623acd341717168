"""An expensive map over a synthetic feed in real time, into a Delta table, by several ways of coping with too much.

Engines: `append` processes every row; `deduplicate` is foreachBatch, newest row per key, map, MERGE; the others are
this project's queue with that policy. `capacity` measures how many rows a second the map alone can do on all cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import upstream
from benchmarks.harness import given_job, say
from benchmarks.overload import Setting, feed_of
from upstream.operators.queue.queue import ONE_PER_KEY

BUCKETS = 16
DDL = "key BIGINT, time TIMESTAMP, value DOUBLE"


def expensive(seconds_per_row: float) -> Any:
    """Return a function over Arrow batches that uses so much processor time per row."""

    def work(batch: pa.RecordBatch) -> pa.Table:
        until = time.thread_time() + seconds_per_row * batch.num_rows
        result = 0.0
        while time.thread_time() < until:
            result += 1.0
        return pa.table({"score": pa.array([result] * batch.num_rows)})

    return work


def whole(seconds_per_row: float) -> Any:
    """Return the same work as a function for mapInArrow, which adds the score to the rows."""
    work = expensive(seconds_per_row)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, 200):
                part = batch.slice(start, 200)
                yield from pa.Table.from_batches([part]).append_column("score", work(part).column(0)).to_batches()

    return run


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run one engine for the job's seconds."""
    spark = upstream.session(master=f"local[{job['cores']}]")
    spark.sparkContext.setLogLevel("ERROR")
    if job["engine"] == "capacity":
        rows = 16_000
        frame = spark.range(rows, numPartitions=job["cores"])
        seconds = []
        for _ in range(4):
            started = time.perf_counter()
            frame.mapInArrow(whole(job["cost"]), "id BIGINT, score DOUBLE").write.format("noop").mode(
                "overwrite"
            ).save()
            seconds.append(time.perf_counter() - started)
        return {"rows_per_second": rows / statistics.median(seconds[1:])}  # the first starts the workers
    query = start(spark, job)
    query.awaitTermination(job["seconds"])
    failed = query.exception()
    query.stop()
    if failed:
        raise failed
    spark.stop()
    return {}


def options_of(job: dict[str, Any]) -> dict[str, str]:
    """Return the options of the job's feed."""
    return feed_of(Setting(**job["setting"]), job["capacity"])


def start(spark: Any, job: dict[str, Any]) -> Any:
    """Start the engine's query."""
    engine, checkpoint, table, cost = job["engine"], job["checkpoint"], job["table"], job["cost"]
    if engine == "deduplicate":
        return deduplicated(spark, job)
    # Policies that keep the newest row per key may get it from the source already.
    how = {"coalesce": "true" if engine in ONE_PER_KEY else "false"}
    if (
        engine == "append"
    ):  # two seconds' work a batch: without a limit each would take as many times longer as the load says
        how["maxRowsPerTrigger"] = str(round(2 * job["capacity"]))
    feed = (
        spark.readStream.format("upstream")
        .schema(upstream.with_system_ddl(DDL))
        .options(connector="synthetic", key="key", eventTime="time", **how, **options_of(job))
        .load()
    )
    if engine == "append":
        rows = feed.where("NOT _upstream.punctuation").drop("_upstream")
        scored = rows.mapInArrow(whole(cost), DDL + ", score DOUBLE")
    else:
        stream = upstream.UpdateStream(feed, key="key", event_time="time")
        stream = stream.queue(policy=engine, shards=BUCKETS)
        scored = stream.map(expensive(cost), "score DOUBLE", batch_rows=200)
    return upstream.write_latest(
        scored, table, key="key", event_time="time", buckets=BUCKETS, checkpoint=checkpoint
    ).start()


def deduplicated(spark: Any, job: dict[str, Any]) -> Any:
    """Start the common recipe: `foreachBatch` that deduplicates, scores, and merges."""
    from upstream.cli.demo import start_merge

    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    feed = {"connector": "synthetic", "coalesce": "false", **options_of(job)}
    return start_merge(spark, feed, job["table"], job["checkpoint"], work=whole(job["cost"]), lanes=job["cores"])


if __name__ == "__main__":
    say(main(given_job()))
