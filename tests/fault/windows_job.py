"""The job that the kill tests run and kill: windows over a folder of CSV files, one file a batch.

Arguments: folder of the feed, table, checkpoint, folder of late rows.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import upstream
from upstream import aggregates as agg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def writer(spark: SparkSession, feed: str, table: str, checkpoint: str, late: str) -> DataStreamWriter:
    rows = (
        spark.readStream.format("upstream")
        .schema(upstream.with_system_ddl("k BIGINT, ms BIGINT, v DOUBLE"))
        .options(path=feed, key="k", time="ms", timeFormat="epoch_ms", progressDelay="500 ms")
        .options(maxFilesPerTrigger=1, minPartitions=2, splitBytes="2 KB", lastLine="complete")
        .load()
    )
    results = (
        upstream.UpdateStream(rows, key="k", event_time="ms")
        .window(
            "2 seconds",
            "300 ms",
            output="all",
            allowed_lateness="600 ms",
            late_location=late,
            time_format="epoch_ms",
            shards=2,
        )
        .agg(n=agg.count(), mean=agg.avg("v"), top=agg.max_("v"))
    )
    every = upstream.UpdateStream(results.dataframe(checkpoint), key=("k", "window_id"), event_time="window_end")
    return upstream.write_latest(every, table, buckets=2, checkpointLocation=checkpoint)


def main(*places: str) -> None:
    from dying_sink import armed

    spark = upstream.session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    armed(writer(spark, *places), spark).trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
