"""Spark's usual recipe on Kafka: readStream.kafka, from_json, foreachBatch, the newest row of each key, MERGE into
Delta.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.latest_spark import SCHEMA, session, upsert
from benchmarks.engines.latest_works import works_done
from benchmarks.harness import given_job, say


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""

    def start() -> Any:
        spark = session(job["cores"], job["jars"])
        spark.sparkContext.setLogLevel("ERROR")
        return spark

    return works_done(start, job, lambda spark, work: run(spark, job, work["topic"], work["out"]))


def run(spark: Any, job: dict[str, Any], topic: str, out: str) -> Any:
    """Read all of a topic into the table `out`."""
    from pyspark.sql import functions as F

    spark.createDataFrame([], SCHEMA).write.format("delta").save(out)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job["servers"])
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    if job["offsets"] is not None:
        reader = reader.option("maxOffsetsPerTrigger", job["offsets"])
    rows = reader.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    writer = rows.writeStream.foreachBatch(upsert(spark, out)).option("checkpointLocation", out + "-checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    say(main(given_job()))
