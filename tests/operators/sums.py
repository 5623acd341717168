"""A feed of few keys, streams over it, and the sums in windows that queries must find."""

from pathlib import Path
from typing import Any

import polars as pl
from kit.feeds import write_csv
from kit.queries import write_to_end
from kit.tables import read_frame
from pyspark.sql import SparkSession

import upstream

KEYS = 7


def rows(first: int, count: int) -> list[tuple[int, int, int]]:
    return [(number * 5 % KEYS, number * 100, number) for number in range(first, first + count)]


def add(feed: Path, name: str, found: list[tuple[int, int, int]]) -> None:
    write_csv(feed / f"{name}.csv", "k,ms,v", found)


def read(spark: SparkSession, feed: Path) -> upstream.UpdateStream:
    df = spark.readStream.format("upstream").options(path=str(feed), key="k", eventTime="ms", timeFormat="epoch_ms")
    df = df.options(schema="k BIGINT, ms BIGINT, v BIGINT", watermarkDelay="1 ms", onEnd="keep")
    return upstream.UpdateStream(df.load(), key="k", event_time="ms")


def finish(stream: upstream.UpdateStream, place: Path, **more: Any) -> pl.DataFrame:
    write_to_end(stream, place / "table", place / "checkpoint", **more)
    return read_frame(place / "table")


def sums(found: list[tuple[int, int, int]], bound_ms: int, range_ms: int) -> set[tuple[int, int, int]]:
    """Key, window and sum of v, of the windows that are complete."""
    totals: dict[tuple[int, int], int] = {}
    for key, ms, value in found:
        window = ms // range_ms
        if (window + 1) * range_ms <= bound_ms:
            totals[key, window] = totals.get((key, window), 0) + value
    return {(key, window, total) for (key, window), total in totals.items()}
