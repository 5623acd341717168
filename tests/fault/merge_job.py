"""The job that the kill tests run and kill: two of Spark's own streams of files, merged, into a table of every row.

Arguments: folder of the feeds, table, checkpoint, folder of late rows.
"""

import sys

import upstream


def main(feed: str, table: str, checkpoint: str, late: str) -> None:
    from dying_sink import armed

    spark = upstream.session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    streams: list[upstream.UpdateStream] = []
    for name in ("left", "right"):
        df = (
            spark.readStream.schema("k BIGINT, ms BIGINT, v STRING")
            .option("maxFilesPerTrigger", 1)
            .option("header", "true")
            .csv(f"{feed}/{name}-*.csv")
        )
        streams.append(
            upstream.UpdateStream.from_dataframe(
                df, key="k", event_time="ms", time_format="epoch_ms", watermark=upstream.Watermark.bounded("100 ms"),
                shards=2, name=name, late_location=late,
            )
        )  # fmt: skip
    left, right = streams
    merged = left.merge(right, prefer="right", flush="slow", flush_rows=60, shards=2, late_location=late)
    writer = upstream.write_latest(
        merged, table, key=("k", "ms", "v"), event_time="ms", buckets=2, checkpointLocation=checkpoint
    )
    armed(writer, spark).trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
