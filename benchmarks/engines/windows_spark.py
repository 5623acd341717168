"""Spark's own windows per key: readStream.csv, withWatermark, groupBy(window, key), append mode, so that a window comes
out once, when it is final.

Spark makes a copy of each row for each of its windows. Of more than a hundred its own way of doing so is not used: the
code that it makes does not compile (seen with 600), so that every batch tries to for a while, and then runs
interpreted. ``explode`` makes the same copies. State in RocksDB with changelog checkpoints, as many shuffle partitions
as cores, no count of the state's rows. All results go to Parquet files; of the latest per key each batch's newest do,
by foreachBatch, which is less work than a MERGE into a table.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.window_state import works_done
from benchmarks.harness import given_job, say

SCHEMA = "key BIGINT, ms BIGINT, value BIGINT"
DELAY_S = 10
MOST_COPIES = 100
STATE = "spark.sql.streaming.stateStore"


def session(cores: int) -> Any:
    """Return a session with settings that suit windows on one machine."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmark")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config(f"{STATE}.providerClass", "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
        .config(f"{STATE}.rocksdb.trackTotalNumberOfRows", "false")
        .getOrCreate()
    )


def windowed(spark: Any, work: dict[str, Any]) -> Any:
    """Return the final windows over the feed at ``work["data"]``."""
    from pyspark.sql import functions as F

    feed = (
        spark.readStream.schema(SCHEMA)
        .option("header", "true")
        .option("maxFilesPerTrigger", work["files_per_batch"])
        .csv(work["data"])
    )
    range_s, slide_s = work["range_s"], work["slide_s"]
    if range_s // slide_s <= MOST_COPIES:
        feed = feed.withColumn("time", F.timestamp_millis("ms")).withWatermark("time", f"{DELAY_S} seconds")
        window, end = F.window("time", f"{range_s} seconds", f"{slide_s} seconds"), "window.end"
    else:
        # By the windows' ends, of which the latest is no more than a range ahead of the latest row.
        first = (F.floor(F.col("ms") / (slide_s * 1000)) + 1) * (slide_s * 1000)
        ends = F.sequence(first, first + (range_s - slide_s) * 1000, F.lit(slide_s * 1000))
        feed = feed.select("key", "value", F.explode(ends).alias("end"))
        feed = feed.select("key", "value", F.timestamp_millis("end").alias("window"))
        feed = feed.withWatermark("window", f"{DELAY_S + range_s} seconds")
        window, end = F.col("window"), "window"
    aggregates = (
        [F.count("*").alias("n"), F.sum("value").alias("total")]
        if work["aggregates"] == "sums"
        else [
            F.count("*").alias("n"),
            F.percentile_approx("value", 0.5).alias("median"),
            F.approx_count_distinct("value").alias("different"),
        ]
    )
    windows = feed.groupBy(window, "key").agg(*aggregates)
    return windows.select("key", F.unix_millis(end).alias("window_end"), *windows.columns[2:])


def newest(batch: Any, out: str) -> None:
    """Write each key's latest window of a batch."""
    from pyspark.sql import functions as F

    latest = batch.groupBy("key").agg(F.max_by(F.struct(*batch.columns[1:]), "window_end").alias("row"))
    latest.select("key", "row.*").write.mode("append").parquet(out)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other; how long each took, and what its state took."""
    spark = session(job["cores"])

    def writer(work: dict[str, Any], checkpoint: str) -> Any:
        written = windowed(spark, work).writeStream.outputMode("append").option("checkpointLocation", checkpoint)
        if work["emit"] == "latest":
            return written.foreachBatch(lambda batch, _: newest(batch, work["out"]))
        return written.format("parquet").option("path", work["out"])

    return works_done(spark, job, writer)


if __name__ == "__main__":
    say(main(given_job()))
