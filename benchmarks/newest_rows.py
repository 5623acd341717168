"""Joins and groups of newest rows beside a plain latest table: ``python -m benchmarks.newest_rows``.

Each query first loads all keys, then takes batches of a few updates: a table of the newest row of each key (the peer),
the same with twice the updates, which a join of two such streams takes, the first joined with the newest row of a
second stream, on the key and on a column that an update changes, and counts by group. Small feeds warm processes up,
and the first batches after the load do not count. After each round the tables must hold what the newest rows give, or
the benchmark stops.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import upstream as us

GROUPS = 200
TWICE = "latest table, twice the updates"
_FIRST = 3


def write_feed(folder: Path, keys: int, batches: int, rows: int, seed: int) -> pl.DataFrame:
    """Write a file with all keys and one for each batch; return the newest row of each key."""
    folder.mkdir()
    chance = np.random.default_rng(seed)
    parts: list[pl.DataFrame] = []
    for number in range(batches + 1):
        ids = np.arange(keys) if number == 0 else chance.integers(0, keys, rows)
        part = pl.DataFrame(
            {
                "k": ids,
                "at": number * 1_000_000 + np.arange(len(ids)),
                "g": chance.integers(0, GROUPS, len(ids)),
                "r": chance.integers(0, keys, len(ids)),
                "v": chance.integers(0, 1_000_000, len(ids)),
            }
        )
        pq.write_table(part.to_arrow(), folder / f"{number:04}.parquet")
        parts.append(part)
    return pl.concat(parts).sort("at").unique("k", keep="last")


def streamed(spark: SparkSession, folder: Path) -> us.UpdateStream:
    """Return the stream of a feed, a file a batch."""
    return us.read(
        spark, folder, key="k", event_time="at", watermark_delay="1 second", timeFormat="epoch_us",
        maxFilesPerTrigger=1, fileFormat="parquet",
    )  # fmt: skip


def queries(
    spark: SparkSession, left: Path, right: Path, twice: Path, shards: int
) -> dict[str, Callable[[], us.UpdateStream]]:
    """Return what is compared, by its name; the first is the peer."""

    def one() -> us.UpdateStream:
        return streamed(spark, left).select("g", "r", "v")

    def two() -> us.UpdateStream:
        return streamed(spark, right).select("v")

    return {
        "latest table": one,
        TWICE: lambda: streamed(spark, twice).select("g", "r", "v"),
        "join_latest on the key": lambda: one().join_latest(two(), on="k", shards=shards),
        "join_latest on a column": lambda: one().join_latest(two(), on={"r": "k"}, shards=shards),
        "group_by": lambda: one().group_by("g", shards=shards).agg(n=us.count(), v=us.sum("v")),
    }


def run(stream: us.UpdateStream, home: Path) -> list[float]:
    """Run a query to its end; return the seconds of its batches, without the first ones."""
    query = stream.write(home / "table", checkpoint=home / "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return [each.batchDuration / 1e3 for each in query.recentProgress if each.numInputRows][_FIRST:]


def table(home: Path) -> pl.DataFrame:
    """Return the rows of a table."""
    found = pl.from_arrow(DeltaTable(str(home / "table")).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def main() -> None:
    """Run the queries in turn, check their tables, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="use this many keys of each side")
    parser.add_argument("--rows", type=int, default=10_000, help="use this many updates in each batch of a side")
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shards", type=int, default=4)
    asked = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": 2, "spark.sql.streaming.numRecentProgressUpdates": 10_000}
    spark = us.session("newest rows", master="local[2]", **settings)
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        measure(spark, Path(place, "warm"), 10_000, _FIRST + 2, 1000, 1, asked.shards)
        seconds = measure(
            spark, Path(place, "feeds"), asked.keys, asked.batches, asked.rows, asked.rounds, asked.shards
        )
    peer = statistics.median(seconds["latest table"])
    print(f"{asked.rows:,} updates a batch, {asked.keys:,} keys a side, {asked.rounds} rounds, seconds of a batch:")
    for name, found in seconds.items():
        middle = statistics.median(found)
        print(
            f"  {name}: median {middle:.2f} ({middle / peer:.2f} x the latest table), mean {statistics.mean(found):.2f}"
        )


def measure(
    spark: SparkSession, place: Path, keys: int, batches: int, rows: int, rounds: int, shards: int
) -> dict[str, list[float]]:
    """Run all queries in turn and check their tables; return the seconds of all batches."""
    place.mkdir()
    feeds = {place / "left": rows, place / "right": rows, place / "twice": 2 * rows}
    newest = [write_feed(each, keys, batches, updates, seed) for seed, (each, updates) in enumerate(feeds.items())]
    seconds: dict[str, list[float]] = {}
    for turn in range(rounds):
        homes: dict[str, Path] = {}
        for name, query in queries(spark, *feeds, shards).items():
            # A folder for each round: Spark may still tidy the state of the last one.
            homes[name] = place / f"{name}-{turn}"
            found = run(query(), homes[name])
            seconds.setdefault(name, []).extend(found)
            print(f"round {turn + 1}, {keys:,} keys, {name}: {statistics.median(found):.2f} s a batch", flush=True)
        check(*newest, {name: table(home) for name, home in homes.items()})
        for home in homes.values():
            shutil.rmtree(home / "table")
    return seconds


def check(left: pl.DataFrame, right: pl.DataFrame, twice: pl.DataFrame, found: dict[str, pl.DataFrame]) -> None:
    """Stop if a table does not hold what the newest rows give."""
    expected = {
        "latest table": left.select("k", "v"),
        TWICE: twice.select("k", "v"),
        "join_latest on the key": left.join(right, on="k").select("k", "v", "v_right"),
        "join_latest on a column": left.join(right, left_on="r", right_on="k").select("k", "v", "v_right"),
        "group_by": left.group_by("g").agg(pl.len().cast(pl.Int64).alias("n"), pl.col("v").sum()),
    }
    for name, rows in expected.items():
        columns = rows.columns
        if not found[name].select(columns).sort(columns).equals(rows.sort(columns)):
            raise SystemExit(f"the table of {name!r} does not hold what the newest rows give")


if __name__ == "__main__":
    main()
