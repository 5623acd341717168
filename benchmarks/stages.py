"""Windows over windows in one stage of Spark's and in two: ``python -m benchmarks.stages``.

Ten-minute windows over one-minute windows per key, files of 1,000 rows, a file a batch. With another number of shards
the second window cannot share the stage of the first: that is the peer. Both run in turn in one session, each from a
new checkpoint; a query's first batches do not count. Their tables must hold the same, and each row once, or the
benchmark stops.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

import polars as pl
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import upstream as us

SHARDS = 16
STAGES = {"one stage": SHARDS, "two stages": SHARDS + 1}
KEYS, MINUTE_MS = 500, 60_000
_FIRST = 10


def write_feed(folder: Path, files: int, rows: int) -> None:
    """Write a file for each minute."""
    folder.mkdir()
    chance = random.Random(1)
    for minute in range(files):
        lines = [f"k{chance.randrange(KEYS)},{minute * MINUTE_MS + at * MINUTE_MS // rows}" for at in range(rows)]
        (folder / f"{minute:04}.csv").write_text("k,at\n" + "\n".join(lines) + "\n")


def batches_ms(spark: SparkSession, feed: Path, home: Path, second_shards: int) -> list[int]:
    """Return the milliseconds of each batch of a query, without the first ones and those without rows."""
    stream = us.read(
        spark, feed, key="k", event_time="at", watermark_delay="1 second", timeFormat="epoch_ms",
        schema="k STRING, at BIGINT", maxFilesPerTrigger=1,
    )  # fmt: skip
    minutes = stream.window("1 minute", shards=SHARDS, emit="all").agg(rows=us.count())
    longer = minutes.window("10 minutes", shards=second_shards, emit="all").agg(rows=us.sum("rows"))
    writer = longer.write(
        home / "table", checkpoint=home / "checkpoint", key=("k", "window_id"), event_time="window_time", buckets=SHARDS
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [each.batchDuration for each in query.recentProgress if each.numInputRows][_FIRST:]


def counted(table: Path) -> pl.DataFrame:
    """Return the number of rows of each key and window."""
    found = pl.from_arrow(DeltaTable(str(table)).to_pyarrow_table(columns=["k", "window_id", "rows"]))
    assert isinstance(found, pl.DataFrame)
    return found.sort("k", "window_id")


def main() -> None:
    """Run both in turn, and print what a batch takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=60, help="run this many batches of each query")
    parser.add_argument("--rows", type=int, default=1000, help="use this many rows in each batch")
    asked = parser.parse_args()
    spark = us.session("stages", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    medians: dict[str, list[float]] = {name: [] for name in STAGES}
    with tempfile.TemporaryDirectory() as place:
        feed = Path(place, "feed")
        write_feed(feed, asked.batches, asked.rows)
        for turn in range(asked.rounds):
            for name in list(STAGES) if turn % 2 == 0 else list(STAGES)[::-1]:
                home = Path(place, f"{name} {turn}")
                medians[name].append(statistics.median(batches_ms(spark, feed, home, STAGES[name])))
                print(f"round {turn + 1}, {name}: {medians[name][-1]:.0f} ms a batch")
            one, two = (counted(Path(place, f"{name} {turn}", "table")) for name in STAGES)
            if not one.equals(two) or int(one["rows"].sum()) > asked.batches * asked.rows or one.is_empty():
                raise SystemExit("the two tables differ")
    spark.stop()
    one, two = (statistics.median(medians[name]) for name in STAGES)
    print(
        f"{asked.rows} rows a batch, median of {asked.rounds} queries: one stage {one:.0f} ms, two stages {two:.0f} "
        f"ms: {two / one:.2f} x"
    )


if __name__ == "__main__":
    main()
