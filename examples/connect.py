"""The speed of each bus over a quarter of an hour, by a client of Spark Connect.

    examples/connect.py --remote sc://server:15002 --from '/data/feed/*.csv' --to /data/speeds

Without arguments it starts a server in its own process, and reads the recording beside it. Install
``pyspark-upstream[connect]`` for it. The client and the server reach feed, table, and checkpoint by the same paths.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import upstream as us

BUSES = Path(__file__).with_name("data") / "buses.csv.gz"


def main() -> None:
    """Read what is there and print the fastest buses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remote", default="local[2]", help="connect to this server, or to local[*] in this process")
    parser.add_argument(
        "--from", dest="source", default=str(BUSES), help="read this feed, which client and server can open"
    )
    parser.add_argument("--to", default="demo-output/speeds", help="write this table, which client and server can open")
    asked = parser.parse_args()

    # A server has 200 shuffle partitions by default: 200 state stores, which take longer than the rows.
    settings: dict[str, Any] = {"spark.remote": asked.remote, "spark.sql.shuffle.partitions": "2"}
    spark = us.session("speeds by Connect", **settings)
    speeds = (
        us.read(spark, asked.source, key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
        .where("speed IS NOT NULL")
        .window("15 minutes", "1 minute")
        .agg(positions=us.count(), speed=us.avg("speed"))
    )
    writer = speeds.write(asked.to, event_time="window_time", checkpoint=asked.to.rstrip("/") + "_checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()

    # The table is read without the server.
    rows = us.LatestTable(asked.to).scan(["vehicle_id", "window_end", "positions", "speed"])
    print(rows.collect().sort("speed", descending=True, nulls_last=True).head(5))
    spark.stop()


if __name__ == "__main__":
    main()
