"""The job that the kill test of Kafka runs and kills: a topic into a latest table.

Arguments: address of the broker, topic, table, checkpoint. A test lets the same query end in its own session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def writer(
    spark: SparkSession, address: str, topic: str, table: str, checkpoint: str, *, most: int
) -> DataStreamWriter:
    options = {
        "connector": "kafka",
        "kafka.bootstrap.servers": address,
        "subscribe": topic,
        "schema": "k BIGINT, ms BIGINT, v STRING",
        "timeFormat": "epoch_ms",
        "progressDelay": "5 seconds",
        "checkpointLocation": checkpoint,
        "maxOffsetsPerTrigger": most,
    }
    updates = upstream.latest(spark, key="k", event_time="ms", **options)
    return upstream.write_latest(updates, table, key="k", event_time="ms", buckets=4, checkpointLocation=checkpoint)


def main(*arguments: str) -> None:
    """Run without end."""
    from dying_sink import armed

    spark = upstream.session(master="local[2]")
    query = armed(writer(spark, *arguments, most=700), spark).trigger(processingTime="0 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
