"""The job that the kill test of ordered joins runs and kills: two feeds, joined in the order of time by whichever way
is worth it, each batch's results in a file.

Arguments: folder of the feeds, folder of the results, checkpoint, seconds to compare two rows.
"""

import json
import sys
from pathlib import Path
from typing import Any

import upstream as us


def writer(spark: Any, feed: str, out: str, checkpoint: str, cost: str) -> Any:
    left, right = (
        us.read(
            spark, f"{feed}/{name}-*.csv", key="k", event_time="ms", schema="k BIGINT, ms BIGINT, v BIGINT",
            watermark=us.Watermark.bounded("100 ms"), timeFormat="epoch_ms", fileFormat="csv", maxFilesPerTrigger=1,
            atEnd="close",
        )
        for name in ("left", "right")
    )  # fmt: skip
    both = left.join(
        right, on="k", within=us.interval(before="30 ms", after="40 ms"), time_format="epoch_ms", shards=2,
        output_order="event_time", release="adaptive", cost=float(cost),
    )  # fmt: skip

    def take(batch: Any, number: int) -> None:
        rows = (
            batch.where("NOT _upstream.punctuation").select("_upstream.source", "join_time", "v", "v_right").collect()
        )
        text = "".join(f"{json.dumps(list(row))}\n" for row in rows)
        file = Path(out) / f"{number:06d}"
        if file.exists() and file.read_text() != text:
            file.with_suffix(".differs").write_text(text)
        made = file.with_suffix(".part")
        made.write_text(text)
        made.rename(file)

    return both.dataframe(checkpoint).writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)


def main(feed: str, out: str, checkpoint: str, cost: str) -> None:
    spark = us.session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    writer(spark, feed, out, checkpoint, cost).trigger(availableNow=True).start().awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
