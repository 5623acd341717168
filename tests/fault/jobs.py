"""The jobs that tests run and kill: a job's name, its arguments, and a cluster's address if it is to run on one.

Most prints `finished` at its end; `latest` and `kafka` have none. A test lets the same query end in its own session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import upstream as us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def latest(
    spark: SparkSession, feed: str, table: str, checkpoint: str, policy: str = "", *, most: int = 700
) -> DataStreamWriter:
    """A folder of growing CSV files into a latest table; with a policy rows wait in a queue."""
    updates = us.latest(
        spark, feed, key="k", event_time="ms", timeFormat="epoch_ms", schema="k BIGINT, ms BIGINT, v STRING",
        maxRowsPerTrigger=most, splitBytes="4 KB",
    )  # fmt: skip
    if policy:
        queued = us.UpdateStream(updates, key="k", event_time="ms").queue(policy=policy, budget=60, shards=4)
        # A key leaves the table with a newest row that ends so, and comes back with a newer one that does not.
        updates = queued.where("NOT v LIKE '%7'", on_leave="delete")
    places = {"metricsLocation": table + "_metrics", "checkpointLocation": checkpoint}
    return us.write_latest(updates, table, key="k", event_time="ms", buckets=4, **places)


def kafka(
    spark: SparkSession, address: str, topic: str, table: str, checkpoint: str, *, most: int = 700
) -> DataStreamWriter:
    """A topic into a latest table."""
    options = {
        "connector": "kafka", "kafka.bootstrap.servers": address, "subscribe": topic, "timeFormat": "epoch_ms",
        "schema": "k BIGINT, ms BIGINT, v STRING", "watermarkDelay": "5 seconds", "maxOffsetsPerTrigger": most,
    }  # fmt: skip
    updates = us.latest(spark, key="k", event_time="ms", **options)
    return us.write_latest(updates, table, key="k", event_time="ms", buckets=4, checkpoint=checkpoint)


def windows(spark: SparkSession, feed: str, table: str, checkpoint: str) -> DataStreamWriter:
    """Windows over a folder of CSV files, one file a batch."""
    rows = (
        spark.readStream.format("upstream")
        .schema(us.with_system_ddl("k BIGINT, ms BIGINT, v DOUBLE"))
        .options(path=feed, key="k", eventTime="ms", timeFormat="epoch_ms", watermarkDelay="500 ms")
        .options(maxFilesPerTrigger=1, minPartitions=2, splitBytes="2 KB", lastLine="complete")
        .load()
    )
    lateness = us.Lateness("600 ms", dead_letters=True)
    windows = us.UpdateStream(rows, key="k", event_time="ms").window(
        "2 seconds", "300 ms", emit="all", lateness=lateness, shards=2
    )
    results = windows.agg(n=us.count(), mean=us.avg("v"), top=us.max("v"))
    every = us.UpdateStream(results.dataframe(checkpoint), key=("k", "window_id"), event_time="window_end")
    return us.write_latest(every, table, buckets=2, checkpoint=checkpoint)


def join(spark: SparkSession, feed: str, table: str, checkpoint: str) -> DataStreamWriter:
    """Two feeds whose files come one a batch, joined by time, into a table of every result."""
    left, right = (
        us.read(
            spark, f"{feed}/{name}-*.csv", key="k", event_time="ms", schema="k BIGINT, ms BIGINT, v BIGINT",
            watermark=us.Watermark.bounded("100 ms"), timeFormat="epoch_ms", fileFormat="csv", maxFilesPerTrigger=1,
            onEnd="close",
        )
        for name in ("left", "right")
    )  # fmt: skip
    pairs = left.join(right, on="k", within=us.Interval(before=30, after=40), how="full", shards=2)
    return pairs.write(table, checkpoint=checkpoint, key=("k", "left_row", "right_row"), buckets=2)


def merge(spark: SparkSession, feed: str, table: str, checkpoint: str) -> DataStreamWriter:
    """Two of Spark's own streams of files, merged, into a table of every row."""

    def side(name: str) -> us.UpdateStream:
        reader = spark.readStream.schema("k BIGINT, ms BIGINT, v STRING").options(maxFilesPerTrigger=1, header="true")
        return us.UpdateStream.from_dataframe(
            reader.csv(f"{feed}/{name}-*.csv"), key="k", event_time="ms", time_format="epoch_ms", shards=2, name=name,
            watermark=us.Watermark.bounded("100 ms"), dead_letter_rows="late",
        )  # fmt: skip

    merged = side("left").merge(side("right"), prefer="right", flush="slow", flush_rows=60, shards=2, dead_letters=True)
    return us.write_latest(merged, table, key=("k", "ms", "v"), event_time="ms", buckets=2, checkpoint=checkpoint)


def main(name: str, *given: str) -> None:
    from dying_sink import armed

    *arguments, master = given if given[-1].startswith("spark:") else (*given, "local[2]")
    spark = us.session(master=master, **{"spark.sql.shuffle.partitions": 2})
    job: Any = globals()[name]
    how: Any = {"processingTime": "0 seconds"} if job in (latest, kafka) else {"availableNow": True}
    writer = job(spark, *arguments)
    armed(writer, spark).trigger(**how).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
