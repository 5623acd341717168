"""Spark's join of two streams: readStream.parquet, withWatermark on both, a condition on time, appended to Delta.

The job names the state: in RocksDB with changelog checkpoints, in the join's format 3 or 2, or in a map on the heap
(format 2). Spark 4.2 refuses format 4 as "under development". As many shuffle partitions as cores, no count of the
state's rows.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.window_state import works_done
from benchmarks.harness import given_job, say

SCHEMA = "key BIGINT, ms BIGINT, id BIGINT, value BIGINT"
STATE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
STATES = {
    "rocksdb 3": ("3", f"{PROVIDERS}.RocksDBStateStoreProvider"),
    "rocksdb 2": ("2", f"{PROVIDERS}.RocksDBStateStoreProvider"),
    "heap": ("2", f"{PROVIDERS}.HDFSBackedStateStoreProvider"),
}


def session(cores: int, state: str) -> Any:
    """Return a session with Delta and settings that suit joins on one machine."""
    from pyspark.sql import SparkSession

    from upstream.conf.jars import delta_jars

    version, provider = STATES[state]
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmark")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", ",".join(delta_jars({})))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.join.stateFormatVersion", version)
        .config("spark.ui.enabled", "false")
        .config(f"{STATE}.providerClass", provider)
        .config(f"{STATE}.rocksdb.trackTotalNumberOfRows", "false")
        .getOrCreate()
    )


def joined(spark: Any, work: dict[str, Any]) -> Any:
    """Return the pairs over the feeds at ``work["left"]`` and ``work["right"]``."""
    from pyspark.sql import functions as F

    def side(name: str) -> Any:
        feed = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", work["files_per_batch"])
        rows = (
            feed.option("recursiveFileLookup", "true").parquet(work[name]).withColumn("time", F.timestamp_millis("ms"))
        )
        return rows.withWatermark("time", f"{work['delay_s']} seconds").alias(name)

    reach = F.expr(f"INTERVAL {work['reach_s']} SECONDS")
    left, right = F.col("left.time"), F.col("right.time")
    near = (F.col("left.key") == F.col("right.key")) & (right >= left - reach) & (right <= left + reach)
    columns = ["left.key", "left.id", "left.ms", "left.value"]
    others = [F.col(f"right.{name}").alias(f"{name}_right") for name in ("id", "ms", "value")]
    return side("left").join(side("right"), near).select(*columns, *others)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other; how long each took, and what its state took."""
    spark = session(job["cores"], job["state"])

    def writer(work: dict[str, Any], checkpoint: str) -> Any:
        written = joined(spark, work).writeStream.outputMode("append").format("delta")
        return written.option("path", work["out"]).option("checkpointLocation", checkpoint)

    return works_done(spark, job, writer)


if __name__ == "__main__":
    say(main(given_job()))
