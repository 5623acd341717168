"""Spark: each query is a streaming query of its own that reads the feed, in one session, all at the same time.

Each keeps the last window of each key only, by a filter before the write, which is less work than a MERGE into a table.
One session is to Spark's advantage over a job each.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.query_batches import done
from benchmarks.engines.windows_spark import SCHEMA, session
from benchmarks.harness import given_job, say


def windows(spark: Any, work: dict[str, Any], query: dict[str, Any]) -> Any:
    """Return what a query has in its last window: ``key, v``. Spark makes a copy of each row for each window."""
    from pyspark.sql import functions as F

    feed = (
        spark.readStream.schema(SCHEMA)
        .option("header", "true")
        .option("maxFilesPerTrigger", work["files_per_batch"])
        .csv(work["data"])
        .withColumn("time", F.timestamp_millis("ms"))
        .withWatermark("time", f"{work['delay_s']} seconds")
    )
    window = F.window("time", f"{query['range_s']} seconds", f"{query['slide_s']} seconds")
    value = F.expr(f"{query['function']}({query['argument']})").alias("v")
    found = feed.groupBy(window, "key").agg(value)
    return found.where(F.unix_millis("window.end") == query["end_ms"]).select("key", "v")


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other."""
    spark = session(job["cores"])
    spark.sparkContext.setLogLevel("ERROR")

    def started(work: dict[str, Any]) -> list[Any]:
        return [
            windows(spark, work, query)
            .writeStream.outputMode("append")
            .option("checkpointLocation", f"{work['out']}-checkpoint/{query['name']}")
            .format("parquet")
            .option("path", f"{work['out']}/{query['name']}")
            .trigger(availableNow=True)
            .start()
            for query in work["queries"]
        ]

    return done(job, started, spark.stop)


if __name__ == "__main__":
    say(main(given_job()))
