"""Session windows on Spark, beside Spark's own ``session_window`` over the same files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import upstream
from upstream.operators.aggregates.functions import count, max_, sum_

pytestmark = pytest.mark.spark

FIRST_MS = 1_700_000_000_000
DELAY_MS = 100
GAP_MS = 30


def write_feed(folder: Path, number: int, late: int = 0) -> None:
    """A file of rows in some disorder, a few of them late. Times are whole tens, so many are exactly a gap apart."""
    chance = random.Random(number)
    begin = FIRST_MS + number * 1000
    rows = [
        (f"k{chance.randrange(12)}", (begin + at - chance.randrange(DELAY_MS)) // 10 * 10, chance.randrange(-50, 50))
        for at in range(0, 1000, 3)
    ]
    rows += [(f"k{chance.randrange(12)}", begin - 10 * chance.randrange(15, 60), 1000 + at) for at in range(late)]
    write_csv(folder / f"part-{number}.csv", "key,ms,value", rows)


def sessions(spark: SparkSession, folder: Path, **options: Any) -> upstream.UpdateStream:
    rows = csv_feed(spark, folder, progressDelay=f"{DELAY_MS} ms", maxFilesPerTrigger=1, lastLine="complete")
    stream = upstream.UpdateStream(rows, key="key", event_time="ms")
    return stream.session_window(f"{GAP_MS} ms", output="all", time_format="epoch_ms", shards=4, **options).agg(
        n=count(), total=sum_("value"), top=max_("value")
    )


def run(results: upstream.UpdateStream, table: Path, checkpoint: Path) -> None:
    keyed = upstream.UpdateStream(results.dataframe(checkpoint), key=("key", "window_id"), event_time="window_time")
    write_to_end(keyed, table, checkpoint, buckets=4)


def of_spark(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """What Spark's batch query finds: every session that is complete at the last low-watermark."""
    rows = spark.read.csv(str(folder), header=True, schema="key STRING, ms BIGINT, value BIGINT")
    bound = rows.agg(F.max("ms")).collect()[0][0] - DELAY_MS
    found = (
        rows.withColumn("at", F.timestamp_millis("ms"))
        .groupBy("key", F.session_window("at", f"{GAP_MS} milliseconds").alias("w"))
        .agg(F.count("*"), F.sum("value"), F.max("value"))
        .select("key", F.unix_millis("w.start"), F.unix_millis("w.end"), "count(1)", "sum(value)", "max(value)")
    )
    # Spark moves a filter on the end below the merging of sessions, where it would cut them short.
    return sorted(tuple(row) for row in found.collect() if row[2] < bound)


def in_table(table: Path) -> list[tuple[Any, ...]]:
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()

    def millis(time: Any) -> int:
        return round(time.timestamp() * 1000)

    return sorted(
        (row["key"], millis(row["window_start"]), millis(row["window_end"]), row["n"], row["total"], row["top"])
        for row in rows
        if row["final"]
    )


def test_sessions_are_those_of_spark_with_late_rows_early_results_and_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, table, checkpoint, late = (tmp_path / name for name in ("feed", "table", "checkpoint", "late"))
    options: dict[str, Any] = {"early": True, "allowed_lateness": "1 second", "late_location": late}
    write_feed(folder, 0)
    write_feed(folder, 1, late=40)
    run(sessions(spark, folder, **options), table, checkpoint)
    first = in_table(table)
    assert first == of_spark(spark, folder)
    write_feed(folder, 2, late=40)
    write_csv(folder / "part-3.csv", "key,ms,value", [("k1", FIRST_MS, 7)])
    run(sessions(spark, folder, **options), table, checkpoint)
    (folder / "part-3.csv").unlink()  # its row is too late for any session
    second = in_table(table)
    assert second == of_spark(spark, folder)
    assert len(second) > 150
    vanished = {row[:2] for row in first} - {row[:2] for row in second}
    assert vanished, "late rows have joined sessions that were given"
    assert sum(each.deleted for _, each in upstream.LatestTable(table).history()) > len(vanished)
    assert [row for file in late.glob("*.parquet") for row in pq.read_table(file).column("value").to_pylist()] == [7]
