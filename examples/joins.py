"""Joins of two streams, on recorded streams: buses with routes, buses that drive too close, ships near ports.

    spark-submit --properties-file conf/spark-defaults.conf --py-files dist/pyspark-upstream.zip \
        examples/joins.py routes

Each job has its own table. Started again, it continues where it was, with the rows that its joins keep.

- ``routes``: how many buses drive on each route now, and how fast. A bus that changes its route leaves one group and
  enters another in one commit. Both feeds may change: buses move, and routes get other names.
- ``bunching``: which buses of one route were in one place within a minute, each pair of positions once.
- ``ships``: which ships are near which port now. A ship that leaves a port leaves the table. The recording is not part
  of this project: give it with ``--from``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import upstream as us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUSES = Path(__file__).with_name("data") / "buses.csv.gz"
ROUTES = (
    (1, "Metro"), (7, "Duval"), (10, "First"), (20, "Manor"), (300, "Govalle"), (801, "North Lamar"), (803, "Burnet"),
)  # fmt: skip
# Name, latitude and longitude of a few ports.
PORTS = (
    ("Baltimore", 39.25, -76.55), ("Galveston", 29.31, -94.79), ("Honolulu", 21.31, -157.87),
    ("Los Angeles", 33.73, -118.26), ("Miami", 25.77, -80.16), ("New Orleans", 29.94, -90.06),
    ("New York", 40.67, -74.05), ("Norfolk", 36.93, -76.33), ("Oakland", 37.80, -122.31), ("San Diego", 32.70, -117.16),
    ("Seattle", 47.60, -122.34), ("Tampa", 27.93, -82.44),
)  # fmt: skip
NEAR_KM = 20.0
CELLS = 4  # of a degree
# Good to a percent over twenty kilometres.
KM_FROM_PORT = (
    "111.2 * SQRT(POW(LAT - port_lat, 2) + POW((LON - port_lon) * COS(RADIANS(port_lat)), 2)) AS km_from_port"
)


def routes(spark: SparkSession, source: str, to: str) -> us.UpdateStream:
    """Return the buses and their mean speed on each route now."""
    names = feed(to + "_routes", ("route_id", "route"), ROUTES)
    buses = us.read(spark, source, key="vehicle_id", event_time="timestamp", coalesce=True)
    of_route = us.read(spark, names, key="route_id", coalesce=True)
    named = buses.select("route_id", "speed").join_latest(of_route, on="route_id")
    return named.group_by("route").agg(buses=us.count(), speed=us.avg("speed"))


def bunching(spark: SparkSession, source: str, to: str) -> us.UpdateStream:
    """Return the pairs of positions of two buses of one route, in one place within a minute."""
    del to

    def positions() -> us.UpdateStream:
        found = us.read(spark, source, key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
        # Places are squares of about a kilometre, since a join needs equal values.
        return found.where("route_id IS NOT NULL").select(
            "route_id", "trip_headsign",
            "CAST(FLOOR(100 * latitude) AS BIGINT) AS north", "CAST(FLOOR(100 * longitude) AS BIGINT) AS east",
        )  # fmt: skip

    return positions().join(
        positions(),
        on=["route_id", "trip_headsign", "north", "east"],
        within=us.Interval(before="1 minute", after="1 minute"),
        condition="l.vehicle_id < r.vehicle_id",
    )


def ships(spark: SparkSession, source: str, to: str) -> us.UpdateStream:
    """Return the ships that are near a port now."""
    cells = [
        (int(lat * CELLS // 1) + north, int(lon * CELLS // 1) + east, name, lat, lon)
        for name, lat, lon in PORTS
        for north in (-1, 0, 1)
        for east in (-1, 0, 1)
    ]
    of_ports = feed(to + "_ports", ("north", "east", "port", "port_lat", "port_lon"), cells)
    place = (f"CAST(FLOOR(LAT * {CELLS}) AS BIGINT) AS north", f"CAST(FLOOR(LON * {CELLS}) AS BIGINT) AS east")
    positions = us.read(spark, source, key="MMSI", event_time="BaseDateTime", coalesce=True)
    ports = us.read(spark, of_ports, key=["north", "east"], coalesce=True)
    beside = positions.select("LAT", "LON", "VesselName", "SOG", *place).join_latest(ports, on=["north", "east"])
    return beside.select("port", "VesselName", "SOG", KM_FROM_PORT).where(
        f"km_from_port <= {NEAR_KM}", on_leave="delete"
    )


def feed(folder: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a small feed of one file, if it is not there yet, and return its folder."""
    file = Path(folder) / "first.csv"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([columns, *rows])
    return folder


# What builds each job's stream, the table's key if it is not the stream's, and which rows are printed first.
JOBS = {
    "routes": (routes, None, "buses DESC, route"),
    "bunching": (bunching, ["route_id", "left_row", "right_row"], "join_time DESC, vehicle_id"),
    "ships": (ships, None, "km_from_port, MMSI"),
}


def main() -> None:
    """Run one of the joins over what is there, and print a part of its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument(
        "--from", dest="source", default=str(BUSES), help="read this feed, which all executors can open"
    )
    parser.add_argument("--to", help="write this table, which all executors can open [default: demo-output/JOB]")
    asked = parser.parse_args()
    to = (asked.to or f"demo-output/{asked.job}").rstrip("/")
    build, key, first = JOBS[asked.job]

    spark = us.session(f"joins: {asked.job}")
    stream = build(spark, asked.source, to)
    writer = stream.write(to, key=key, checkpoint=to + "_checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()

    table = spark.sql(f"SELECT * FROM delta.`{Path(to).absolute()}` ORDER BY {first}")
    table.drop("_upstream_seq", "_upstream_bucket", "left_row", "right_row").show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
