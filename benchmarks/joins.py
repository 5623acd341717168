"""Joins of two streams by time, beside Spark's stream-stream join: ``python -m benchmarks.joins``.

Two feeds of Parquet files, a key and a time for each row, about one partner within a minute for each; pairs go to a
Delta table. Both engines read the same files, as many in each batch, in a process of their own, with the state store
RocksDB and two shuffle partitions. Spark's join has the state format 3: Spark 4.2.0 refuses 4, as under development.
Each pair counts once, and the tables must hold the same pairs, or the benchmark stops. ``--late`` moves a share of the
rows five minutes back in arrival: there the tables are compared with a batch join, and what is missing is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

KEYS = 100_000
NEAR_US = 60_000_000
LATE_US = 300_000_000
DISORDER_US = 2_000_000


def write_feed(folder: Path, rows: int, files: int, span_us: int, late: float, seed: int) -> pl.DataFrame:
    """Write one side's files; return its rows."""
    folder.mkdir(parents=True)
    chance = np.random.default_rng(seed)
    at = np.sort(chance.integers(0, span_us, rows))
    arrives = at + chance.integers(0, DISORDER_US, rows)
    if late:
        arrives = arrives + np.where(chance.random(rows) < late, LATE_US, 0)
    order = np.argsort(arrives, kind="stable")
    table = pa.table(
        {
            "k": chance.integers(0, KEYS, rows)[order],
            "at": pa.array(at[order], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "id": np.arange(rows)[order],
        }
    )
    size = -(-rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"{number:04}.parquet")
        time.sleep(0.002)  # both engines read files in the order of their times
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def upstream_join(home: Path, files: int, delay_s: int) -> float:
    """Run this package's join; return the seconds from the query's start to its end."""
    import upstream as us

    spark = us.session("joins", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    left, right = (
        us.read(
            spark, home / name, key="id", event_time="at", watermark=us.Watermark.bounded(f"{delay_s} seconds"),
            fileFormat="parquet", maxFilesPerTrigger=files, atEnd="close",
        )
        for name in ("left", "right")
    )  # fmt: skip
    near = us.interval(before="60 seconds", after="60 seconds")
    pairs = left.join(right, on="k", within=near)
    began = time.monotonic()
    writer = pairs.write(home / "upstream", checkpoint=home / "upstream_cp", key=("left_row", "right_row"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.monotonic() - began


def spark_join(home: Path, files: int, delay_s: int) -> float:
    """Run Spark's stream-stream join; return the seconds from the query's start to its end."""
    from pyspark.sql import functions as F

    import upstream as us

    spark = us.session(
        "joins", master="local[2]",
        **{"spark.sql.shuffle.partitions": 2, "spark.sql.streaming.join.stateFormatVersion": 3},
    )  # fmt: skip
    left, right = (
        spark.readStream.schema("k BIGINT, at TIMESTAMP, id BIGINT")
        .option("maxFilesPerTrigger", files)
        .parquet(str(home / name))
        .select(F.col("k").alias(f"{name}_k"), F.col("at").alias(f"{name}_at"), F.col("id").alias(f"{name}_id"))
        .withWatermark(f"{name}_at", f"{delay_s} seconds")
        for name in ("left", "right")
    )
    pairs = left.join(
        right,
        F.expr("left_k = right_k AND right_at BETWEEN left_at - INTERVAL 60 SECONDS AND left_at + INTERVAL 60 SECONDS"),
    ).select(F.col("left_id").alias("id"), F.col("right_id").alias("id_right"))
    began = time.monotonic()
    writer = pairs.writeStream.format("delta").option("checkpointLocation", str(home / "spark_cp"))
    writer.trigger(availableNow=True).start(str(home / "spark")).awaitTermination()
    return time.monotonic() - began


ENGINES = {"upstream": upstream_join, "spark": spark_join}


def pairs_in(table: Path) -> pl.DataFrame:
    """Return the pairs of a table, sorted."""
    found = pl.from_arrow(DeltaTable(str(table)).to_pyarrow_table(columns=["id", "id_right"]))
    assert isinstance(found, pl.DataFrame)
    return found.sort("id", "id_right")


def pairs_of(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs that a batch join gives."""
    near = pl.duration(microseconds=NEAR_US)
    found = left.join(right, on="k").filter((pl.col("at_right") - pl.col("at")).abs() <= near)
    return found.select("id", "id_right").sort("id", "id_right")


def measured(engine: str, home: Path, files: int, delay_s: int) -> tuple[float, float]:
    """Run an engine in a process of its own; return the seconds of the query and of the process."""
    began = time.monotonic()
    asked = [sys.executable, "-m", "benchmarks.joins", "--engine", engine, "--home", str(home)]
    done = subprocess.run(
        [*asked, "--files-a-batch", str(files), "--delay", str(delay_s)], capture_output=True, text=True, check=False
    )
    whole = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])["seconds"], whole


def main() -> None:
    """Run both engines in turn and print the ratio; or one engine, for that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of each side")
    parser.add_argument("--files", type=int, default=40, help="of each side")
    parser.add_argument("--files-a-batch", type=int, default=4, help="of each side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--late", type=float, default=0.0, help="share of rows that come five minutes late")
    parser.add_argument("--delay", type=int, help="seconds of the watermark [default: 3, or 303 with late rows]")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engine:
        seconds = ENGINES[asked.engine](asked.home, asked.files_a_batch, asked.delay)
        print(json.dumps({"seconds": seconds}))
        return
    # One partner for each row: rows · 2 minutes / span / keys = 1.
    span_us = max(int(asked.rows * 2 * NEAR_US / KEYS), 4 * NEAR_US)
    delays = {"upstream": asked.delay or (303 if asked.late else 3), "spark": asked.delay or 3}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ENGINES}
    for turn in range(asked.rounds):
        with tempfile.TemporaryDirectory() as place:
            home = Path(place)
            sides = [
                write_feed(home / name, asked.rows, asked.files, span_us, asked.late, seed)
                for seed, name in enumerate(("left", "right"), start=2 * turn)
            ]
            for name in list(ENGINES) if turn % 2 == 0 else list(ENGINES)[::-1]:
                found[name].append(measured(name, home, asked.files_a_batch, delays[name]))
                query, whole = found[name][-1]
                print(f"round {turn + 1}, {name}: {query:.1f} s, {whole:.1f} s with its start", flush=True)
            check(pairs_of(*sides), {name: pairs_in(home / name) for name in ENGINES}, late=bool(asked.late))
    medians = {name: [statistics.median(each) for each in zip(*runs, strict=True)] for name, runs in found.items()}
    print(f"2 × {asked.rows:,} rows, {KEYS:,} keys, ± 60 s, medians of {asked.rounds} rounds:")
    for name, (query, whole) in medians.items():
        print(f"  {name}: {query:.1f} s, {whole:.1f} s with its start")
    for at, what in enumerate(("the query", "with its start")):
        print(f"  {what}: {medians['spark'][at] / medians['upstream'][at]:.2f} × as fast as Spark's join")


def check(expected: pl.DataFrame, tables: dict[str, pl.DataFrame], *, late: bool) -> None:
    """Stop if a table lacks a pair or has another; with late rows, say how many Spark's join lacks."""
    for name, table in tables.items():
        missing = len(expected) - len(table)
        if late and name == "spark":
            print(f"  Spark's join lacks {missing:,} of {len(expected):,} pairs: its watermark drops late rows")
        elif not table.equals(expected):
            raise SystemExit(f"{name}: {len(table):,} pairs, and a batch join gives {len(expected):,}")


if __name__ == "__main__":
    main()
