"""The job that the kill test of joins runs and kills: two feeds, joined by time, into a table of every result.

Arguments: folder of the feeds, table, checkpoint; a cluster, if it is to run on one.
"""

import sys
from typing import Any

import upstream as us


def writer(spark: Any, feed: str, table: str, checkpoint: str) -> Any:
    left, right = (
        us.read(
            spark, f"{feed}/{name}-*.csv", key="k", event_time="ms", schema="k BIGINT, ms BIGINT, v BIGINT",
            watermark=us.Watermark.bounded("100 ms"), timeFormat="epoch_ms", fileFormat="csv", maxFilesPerTrigger=1,
            atEnd="close",
        )
        for name in ("left", "right")
    )  # fmt: skip
    pairs = left.join(right, on="k", within=us.interval(before=30, after=40), how="full", shards=2)
    return pairs.write(table, checkpoint=checkpoint, key=("k", "left_row", "right_row"), buckets=2)


def main(feed: str, table: str, checkpoint: str, master: str = "local[2]") -> None:
    from dying_sink import armed

    spark = us.session(master=master, **{"spark.sql.shuffle.partitions": 2})
    armed(writer(spark, feed, table, checkpoint), spark).trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
