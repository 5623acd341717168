"""Joins and groups of newest rows beside a plain latest table: ``python -m benchmarks.newest_rows``.

Each query first loads all keys, then takes batches of a few updates: a table of the newest row of each key (the peer),
the same joined with the newest row of a second stream, and counts by group. A batch's first run does not count. The
table of the join and that of the groups must hold what the newest rows give, or the benchmark stops.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import upstream as us

GROUPS = 200
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


def run(stream: Any, home: Path) -> float:
    """Run a query to its end; return the median of a batch's seconds, without the first ones."""
    query = stream.write(home / "table", checkpoint=home / "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return statistics.median([each.batchDuration / 1e3 for each in query.recentProgress if each.numInputRows][_FIRST:])


def table(home: Path) -> pl.DataFrame:
    """Return the rows of a table."""
    found = pl.from_arrow(DeltaTable(str(home / "table")).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def main() -> None:
    """Run the queries in turn, check their tables, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of each side")
    parser.add_argument("--rows", type=int, default=10_000, help="updates in each batch of a side")
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    spark = us.session("newest rows", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    with tempfile.TemporaryDirectory() as place:
        left, right = Path(place, "left"), Path(place, "right")
        newest = [write_feed(each, asked.keys, asked.batches, asked.rows, n) for n, each in enumerate((left, right))]
        queries: dict[str, Callable[[], Any]] = {
            "latest table": lambda: streamed(spark, left).select("g", "v"),
            "join_latest on the key": lambda: streamed(spark, left).join_latest(streamed(spark, right), on="k"),
            "group_by": lambda: streamed(spark, left).group_by("g").agg(n=us.count(), v=us.sum("v")),
        }
        seconds: dict[str, list[float]] = {name: [] for name in queries}
        for turn in range(asked.rounds):
            for name, query in queries.items():
                home = Path(place, f"{name} {turn}")
                seconds[name].append(run(query(), home))
                print(f"round {turn + 1}, {name}: {seconds[name][-1]:.2f} s a batch", flush=True)
            check(*newest, *(table(Path(place, f"{name} {turn}")) for name in list(queries)[1:]))
        peer = statistics.median(seconds["latest table"])
        print(f"{asked.rows:,} updates a batch, {asked.keys:,} keys a side, {asked.rounds} rounds, medians:")
        for name, found in seconds.items():
            print(
                f"  {name}: {statistics.median(found):.2f} s, {statistics.median(found) / peer:.2f} × the latest table"
            )


def check(left: pl.DataFrame, right: pl.DataFrame, joined: pl.DataFrame, grouped: pl.DataFrame) -> None:
    """Stop if a table does not hold what the newest rows give."""
    pairs = left.join(right, on="k").select("k", "v", "v_right").sort("k")
    if not joined.select("k", "v", "v_right").sort("k").equals(pairs):
        raise SystemExit("the table of the join differs from the join of the newest rows")
    groups = left.group_by("g").agg(pl.len().cast(pl.Int64).alias("n"), pl.col("v").sum()).sort("g")
    if not grouped.select("g", "n", "v").sort("g").equals(groups):
        raise SystemExit("the table of the groups differs from the groups of the newest rows")


if __name__ == "__main__":
    main()
