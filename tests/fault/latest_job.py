"""The job that the kill tests run and kill: a folder of growing CSV files into a latest table.

Arguments: folder of the feed, table, checkpoint, and a policy if rows are to wait in a queue. A test lets the same
query end in its own session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def writer(
    spark: SparkSession, feed: str, table: str, checkpoint: str, policy: str = "", *, most: int
) -> DataStreamWriter:
    updates = upstream.latest(
        spark,
        feed,
        key="k",
        event_time="ms",
        timeFormat="epoch_ms",
        schema="k BIGINT, ms BIGINT, v STRING",
        checkpointLocation=checkpoint,
        maxRowsPerTrigger=most,
        splitBytes="4 KB",
    )
    if policy:
        queued = upstream.UpdateStream(updates, key="k", event_time="ms").queue(policy=policy, budget=60, shards=4)
        # A key leaves the table with a newest row that ends so, and comes back with a newer one that does not.
        updates = queued.where("NOT v LIKE '%7'", on_leave="delete")
    return upstream.write_latest(
        updates,
        table,
        key="k",
        event_time="ms",
        buckets=4,
        metricsLocation=table + "_metrics",
        checkpointLocation=checkpoint,
    )


def main(*arguments: str) -> None:
    """Run without end."""
    from dying_sink import armed

    spark = upstream.session(master="local[2]")
    query = armed(writer(spark, *arguments, most=700), spark).trigger(processingTime="0 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
