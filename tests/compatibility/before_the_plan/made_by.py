"""What made the data of this folder, by release 0.1.0's API before it had a plan: jobs that stopped in the middle,
below one root.

Run with the root as its argument. `feeds` holds what the jobs had read; `later` what is to come when they go on.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import upstream
from upstream import aggregates as agg


def rows(first: int, count: int) -> str:
    """Keys 0 to 39, a row each 100 ms, out of order within half a second."""
    lines = ["k,ms,v"]
    for number in range(first, first + count):
        lines.append(f"{number * 7 % 40},{number * 100 - number * 37 % 500},v{number}")
    return "\n".join(lines) + "\n"


def source(spark, feed: Path, checkpoint: Path, **options):
    return (
        spark.readStream.format("upstream")
        .options(path=str(feed), key="k", time="ms", timeFormat="epoch_ms", progressDelay="1 second")
        .options(schema="k BIGINT, ms BIGINT, v STRING", atEnd="keep", maxFilesPerTrigger="1", **options)
        .option("checkpointLocation", str(checkpoint))
        .load()
    )


def main(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for job in ("latest", "windows", "queue", "merged"):
        feed = root / "feeds" / job
        feed.mkdir(parents=True)
        (root / "later" / job).mkdir(parents=True)
        for number in range(3):
            (feed / f"{number}.csv").write_text(rows(number * 200, 200))
        (root / "later" / job / "3.csv").write_text(rows(600, 300))
    other = root / "feeds" / "merged-other"
    other.mkdir()
    (other / "0.csv").write_text(rows(100, 200))
    (root / "later" / "merged-other").mkdir()
    (root / "later" / "merged-other" / "1.csv").write_text(rows(900, 100))

    spark = upstream.session(master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    places = {
        job: (root / "tables" / job, root / "checkpoints" / job) for job in ("latest", "windows", "queue", "merged")
    }

    table, checkpoint = places["latest"]
    updates = source(spark, root / "feeds" / "latest", checkpoint, coalesce="true")
    updates = upstream.UpdateStream(updates, key="k", time="ms").where("v NOT LIKE '%77'", on_leave="delete")
    writer = upstream.write_latest(
        updates, str(table), buckets=2, checkpointLocation=str(checkpoint), metricsLocation=f"{table}-metrics"
    )
    writer.trigger(availableNow=True).start().awaitTermination()

    table, checkpoint = places["windows"]
    stream = upstream.UpdateStream(source(spark, root / "feeds" / "windows", checkpoint), key="k", time="ms")
    first = stream.window(
        "10 seconds", "5 seconds", emit="all", shards=2, time_format="epoch_ms", checkpoint_location=checkpoint
    ).agg(n=agg.count(), last=agg.max_("v"))
    second = first.window("30 seconds", emit="all", shards=2, checkpoint_location=checkpoint).agg(
        n=agg.sum_("n"), windows=agg.count()
    )
    every = upstream.UpdateStream(second.df, key=("k", "window_id"), time="window_end")
    writer = upstream.write_latest(every, str(table), buckets=2, checkpointLocation=str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()

    table, checkpoint = places["merged"]
    one = upstream.UpdateStream(source(spark, root / "feeds" / "merged", checkpoint), key="k", time="ms")
    two = upstream.UpdateStream(source(spark, root / "feeds" / "merged-other", checkpoint), key="k", time="ms")
    merged = one.merge(two, checkpoint_location=checkpoint, shards=2).distinct(
        "k", "v", checkpoint_location=checkpoint, shards=2
    )
    writer = upstream.write_latest(merged, str(table), buckets=2, checkpointLocation=str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()

    table, checkpoint = places["queue"]
    stream = upstream.UpdateStream(source(spark, root / "feeds" / "queue", checkpoint), key="k", time="ms")
    queued = stream.queue(policy="linecutting", budget=6, shards=2, checkpoint_location=checkpoint)
    writer = upstream.write_latest(queued, str(table), buckets=2, checkpointLocation=str(checkpoint))
    query = writer.trigger(processingTime="0 seconds").start()
    while (query.lastProgress is None or query.lastProgress.batchId < 3) and query.isActive:
        query.awaitTermination(0.05)
    query.stop()
    print({job: DeltaRows(places[job][0]) for job in places})


def DeltaRows(table: Path) -> int:
    from deltalake import DeltaTable

    return DeltaTable(str(table)).to_pyarrow_dataset().count_rows()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
