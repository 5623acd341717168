"""Two tables of a declarative pipeline: where each bus was last, and how fast it was over a quarter of an hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import upstream as us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

spark = SparkSession.active()
# Spark runs this file in the folder of spark-pipeline.yml. Its server may have another working directory.
feed = Path(str(spark.conf.get("buses.feed"))).resolve()
storage = Path(str(spark.conf.get("buses.storage")))

dp.create_sink("newest", "upstream", {"path": str(storage / "newest"), "key": "vehicle_id", "eventTime": "timestamp"})
dp.create_sink("speeds", "upstream", {"path": str(storage / "speeds"), "key": "vehicle_id", "eventTime": "window_time"})

# Spark analyses nothing inside of a flow's function, so a stream with steps is made here.
speeds = (
    us.read(spark, feed, key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
    .where("speed IS NOT NULL")
    .window("15 minutes", "1 minute")
    .agg(positions=us.count(), speed=us.avg("speed"))
    # The checkpoint that Spark gives the flow: <storage>/_checkpoints/<sink>/<flow>/0
    .dataframe(storage / "_checkpoints" / "speeds" / "speeds_of_buses" / "0")
)


@dp.append_flow(target="newest")
def newest_positions() -> DataFrame:
    """Keep the newest position of each bus."""
    return us.latest(spark, str(feed), key="vehicle_id", event_time="timestamp")


@dp.append_flow(target="speeds")
def speeds_of_buses() -> DataFrame:
    """Keep the last window of each bus."""
    return speeds
