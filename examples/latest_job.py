"""The newest row per key of a feed, kept in a Delta table: a job for spark-submit.

    spark-submit --properties-file conf/spark-defaults.conf --py-files dist/pyspark-upstream.zip \
        examples/latest_job.py --from 'feed/*.csv' --key vehicle_id --event-time timestamp --to /data/latest

The same file runs on a laptop (``python examples/latest_job.py …``), on Spark standalone, on YARN and on Kubernetes;
docs/cluster.md describes the differences. A restarted job resumes.
"""

from __future__ import annotations

import argparse

import upstream as us


def main() -> None:
    """Read the arguments, start the query, wait for its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--from", dest="source", required=True, help="read this file, folder or glob, which all executors can open"
    )
    parser.add_argument("--key", required=True, nargs="+", help="set the update key")
    parser.add_argument("--event-time", required=True, help="name the column of the event time")
    parser.add_argument("--to", required=True, help="write this table, which all executors can open")
    parser.add_argument("--checkpoint", help="keep the checkpoint here [default: beside the table]")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="set an option of the source; repeatable"
    )
    parser.add_argument("--once", action="store_true", help="read the present rows, then end")
    asked = parser.parse_args()

    checkpoint = asked.checkpoint or asked.to.rstrip("/") + "_checkpoint"
    options = dict(option.split("=", 1) for option in asked.option)

    spark = us.session("newest row per key")
    updates = us.read(spark, asked.source, key=asked.key, event_time=asked.event_time, coalesce=True, **options)
    writer = updates.write(asked.to, checkpoint=checkpoint)
    query = (writer.trigger(availableNow=True) if asked.once else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
