"""A window query as Spark's own groupBy(window, key), in append mode."""

from __future__ import annotations

from typing import Any

from benchmarks.engines.windows_spark import SCHEMA

__all__ = ["windows"]


def windows(spark: Any, work: dict[str, Any], query: dict[str, Any]) -> Any:
    """Return what a query has in its last window: ``key, v``."""
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
