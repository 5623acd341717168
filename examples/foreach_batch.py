"""Spark's own aggregate, kept as a table of its newest results: update mode, `foreachBatch`, exactly once.

Only append mode reaches a Python sink directly, and a plain `groupBy` gives changed results in update mode. So each
batch's results go to the table as a batch: `us.write_batch` takes the query's id and the batch's number from Spark, and
a batch that is run again changes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import upstream as us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUSES = Path(__file__).with_name("data") / "buses*.csv.gz"


def main() -> None:
    """Read the recording to its end and print the routes with the fastest buses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", default=str(BUSES), help="read this folder or glob")
    parser.add_argument("--to", default="demo-output/routes")
    asked = parser.parse_args()

    spark = us.session("routes by foreachBatch")
    schema = spark.read.option("header", True).option("inferSchema", True).csv(asked.source).schema
    positions = spark.readStream.schema(schema).option("header", True).csv(asked.source)
    routes = positions.groupBy("route_id").agg(F.count("*").alias("positions"), F.max("speed").alias("fastest"))

    def upsert(results: DataFrame, batch_id: int) -> None:
        us.write_batch(results, asked.to, key="route_id", batchId=batch_id)

    query = (
        routes.where("route_id IS NOT NULL")
        .writeStream.outputMode("update")
        .foreachBatch(upsert)
        .option("checkpointLocation", asked.to + "_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    table = spark.read.format("delta").load(asked.to).select("route_id", "positions", "fastest")
    table.orderBy("fastest", ascending=False).show(5)
    spark.stop()


if __name__ == "__main__":
    main()
