"""The job that is killed, or of which tasks fail, at steps of the sink: a folder of CSV files into a latest table, a
file a batch.

Arguments: folder of the feed, table, checkpoint, Spark's master, and `apart` if the rows are to come as they are: of
each bucket some in each task.
"""

import sys

from dying_sink import armed

import upstream


def main(feed: str, table: str, checkpoint: str, master: str, parted: str = "") -> None:
    settings = {"spark.sql.shuffle.partitions": 2}
    if master.startswith("spark:"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": 1.1,
            "spark.speculation.minTaskRuntime": "500ms",
            "spark.executor.memory": "600m",
        }
    spark = upstream.session(master=master, **settings)
    rows = (
        spark.readStream.schema("k BIGINT, ms BIGINT, v STRING")
        .option("header", "true")
        .option("maxFilesPerTrigger", 1)
        .csv(feed)
    )
    if parted:
        options = {"path": table, "key": "k", "eventTime": "ms", "buckets": "4", "checkpointLocation": checkpoint}
        writer = rows.repartition(2).writeStream.options(**options)
    else:
        writer = upstream.write_latest(rows, table, key="k", event_time="ms", buckets=4, checkpoint=checkpoint)
    armed(writer.format("upstream"), spark).trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
