"""A filter, a map and a Spark SQL step between the feed and the table.

Buses report metres per second; the table is to hold kilometres per hour, of the buses of some routes, with the route's
name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import upstream as us

BUSES = Path(__file__).with_name("data") / "buses.csv.gz"


def main() -> None:
    """Read the recording to its end and print the fastest buses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", default=str(BUSES))
    parser.add_argument("--to", default="demo-output/fast_buses")
    asked = parser.parse_args()

    spark = us.session("buses with SQL")
    spark.createDataFrame(
        [
            (1, "Metro"),
            (7, "Duval"),
            (10, "First"),
            (20, "Manor"),
            (300, "Govalle"),
            (801, "North Lamar"),
            (803, "Burnet"),
        ],
        "route_id BIGINT, route STRING",
    ).createOrReplaceTempView("routes")

    # `where` is asked of every row before coalescing: the newest *moving* position of each bus.
    updates = us.latest(spark, asked.source, key="vehicle_id", event_time="timestamp", where="speed > 0")

    # Filter: the newest position decides. A bus that leaves the area leaves the table.
    buses = us.UpdateStream(updates, key="vehicle_id", event_time="timestamp")
    inside = buses.where("latitude BETWEEN 30.0 AND 30.6", on_leave="delete").df
    # Map: native expressions; key and time stay as they are.
    faster = inside.withColumn("kmh", inside["speed"] * 3.6).drop("speed", "trip_headsign")
    # SQL: a join with a small table. LEFT keeps punctuation rows.
    faster.createOrReplaceTempView("positions")
    named = spark.sql("SELECT p.*, r.route FROM positions p LEFT JOIN routes r USING (route_id)").drop("route_id")

    query = (
        us.write_latest(named, asked.to, key="vehicle_id", event_time="timestamp")
        .option("checkpointLocation", asked.to + "_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    table = spark.read.format("delta").load(asked.to)
    table.where("route IS NOT NULL").select("vehicle_id", "route", "kmh", "timestamp").orderBy(
        "kmh", ascending=False
    ).show(5)
    spark.stop()


if __name__ == "__main__":
    main()
