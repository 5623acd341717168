"""Spark's usual recipe: readStream.csv, foreachBatch, the newest row of each key, MERGE into Delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.engines.latest_works import works_done
from benchmarks.harness import given_job, say

SCHEMA = "key BIGINT, ms BIGINT, value DOUBLE"


def session(cores: int, jars: Sequence[str] = ()) -> Any:
    """Return a session with Delta, the given jars, and settings that suit the recipe."""
    from pyspark.sql import SparkSession

    from upstream.conf.jars import delta_jars

    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmark")
        .config("spark.jars", ",".join([*delta_jars({}), *jars]))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def upsert(spark: Any, out: str) -> Any:
    """Return the function for `foreachBatch`: it merges the newest row per key into the table."""
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    def merge(batch: Any, batch_id: int) -> None:
        del batch_id
        newest = batch.groupBy("key").agg(F.max_by(F.struct("ms", "value"), "ms").alias("row"))
        newest = newest.select("key", "row.ms", "row.value")
        (
            DeltaTable.forPath(spark, out)
            .alias("t")
            .merge(newest.alias("s"), "t.key = s.key")
            .whenMatchedUpdateAll("s.ms > t.ms")
            .whenNotMatchedInsertAll()
            .execute()
        )

    return merge


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""

    def start() -> Any:
        spark = session(job["cores"])
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    return works_done(start, job, lambda spark, work: run(spark, work["data"], work["out"], job["files_per_batch"]))


def run(spark: Any, data: str, out: str, files_per_batch: int) -> Any:
    """Read everything at `data` into the table `out`."""
    spark.createDataFrame([], SCHEMA).write.format("delta").save(out)
    feed = (
        spark.readStream.schema(SCHEMA).option("header", "true").option("maxFilesPerTrigger", files_per_batch).csv(data)
    )
    writer = feed.writeStream.foreachBatch(upsert(spark, out)).option("checkpointLocation", out + "-checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    say(main(given_job()))
