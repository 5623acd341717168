"""How fast each bus was over the last quarter of an hour, every minute: a job for spark-submit.

    spark-submit --properties-file conf/spark-defaults.conf --py-files dist/pyspark-upstream.zip \
        examples/windows.py --from 'feed/*.csv' --to /data/speeds

Without arguments it reads the recording beside it. After a restart, it resumes where it was, with the windows
that were open.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import upstream as us

BUSES = Path(__file__).with_name("data") / "buses.csv.gz"


def main() -> None:
    """Read what is there and print the fastest buses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--from", dest="source", default=str(BUSES), help="read this feed, which all executors can open"
    )
    parser.add_argument("--to", default="demo-output/speeds", help="write this table, which all executors can open")
    parser.add_argument("--range", default="15 minutes", help="set the length of a window")
    parser.add_argument("--slide", default="1 minute", help="start a window this often")
    parser.add_argument("--every", action="store_true", help="keep every window, not only the latest one of each bus")
    asked = parser.parse_args()
    checkpoint = asked.to.rstrip("/") + "_checkpoint"

    spark = us.session("speeds over a window")
    # Every row counts in a window, so nothing is coalesced; a row may be five minutes behind the newest.
    speeds = (
        us.read(spark, asked.source, key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
        .where("speed IS NOT NULL")
        .window(asked.range, asked.slide, emit="all" if asked.every else "latest")
        .agg(positions=us.count(), speed=us.avg("speed"), top=us.max("speed"))
    )
    # A table of every window has a row for each key and window.
    key = ("vehicle_id", "window_id") if asked.every else "vehicle_id"
    writer = speeds.write(asked.to, key=key, event_time="window_time", checkpoint=checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()

    table = spark.read.format("delta").load(asked.to)
    table.select("vehicle_id", "window_start", "window_end", "positions", "speed", "top").orderBy(
        "speed", ascending=False
    ).show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
