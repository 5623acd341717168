"""Windows over the recorded ships, name servers and buses, on Spark, against DuckDB over the complete files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kit.places import RECORDED, needs_recorded
from kit.queries import write_to_end
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import upstream
from upstream.core.feedback.checkpoint_layout import windows_folder
from upstream.core.feedback.report_files import read_reports
from upstream.core.feedback.window_reports import WindowReport
from upstream.operators.aggregates.functions import avg, collect, count

pytestmark = [
    pytest.mark.spark,
    needs_recorded,
]


def in_parts(name: str, folder: Path, closing: Callable[[list[str]], str], *, by: int | None = None) -> None:
    """A recording as several plain files, row by row in its order or by one column, and a last file of one row.

    A compressed file is never divided, so it would be one batch of one task. The last row says that time has gone on,
    as a feed that goes on would; a feed of files has no end.
    """
    with gzip.open(RECORDED / name, "rt") as file:
        lines = file.read().splitlines()
    zeek = lines[0].startswith("#")
    header = [line for line in lines if line.startswith("#") and not line.startswith("#close")] if zeek else lines[:1]
    rows = [line for line in lines[1:] if not line.startswith("#")]
    if by is not None:
        rows.sort(key=lambda line: line.split(",")[by])
    folder.mkdir()
    size = -(-len(rows) // 4)
    parts = [rows[low : low + size] for low in range(0, len(rows), size)] + [[closing(rows)]]
    for number, part in enumerate(parts):
        (folder / f"part-{number}{'.log' if zeek else '.csv'}").write_text("\n".join([*header, *part]) + "\n")


def stream_of(spark: SparkSession, folder: Path, key: str, time: str, **options: Any) -> upstream.UpdateStream:
    """A file a batch, two tasks each."""
    given = {"maxFilesPerTrigger": 1, "minPartitions": 2, "splitBytes": "512 KB", "lastLine": "complete", **options}
    rows = spark.readStream.format("upstream").options(key=f"`{key}`", time=time, **given).load(str(folder))
    return upstream.UpdateStream(rows, key=key, event_time=time)


def table_of(results: upstream.UpdateStream, path: Path, every: bool) -> pl.DataFrame:
    """Run a query until all files are in, and read its table: of every window, or the latest one of each key."""
    checkpoint = str(path) + "_checkpoint"
    (key,) = results.key
    if every:
        results = upstream.UpdateStream(results.df, key=(key, "window_id"), event_time="window_time")
    write_to_end(results, path, checkpoint, buckets=4)
    reports = read_reports(windows_folder(checkpoint), WindowReport)
    assert reports
    assert sum(report.late for report in reports) == 0
    summaries = [summary for _, summary in upstream.LatestTable(path).history()]
    assert len(summaries) >= 4
    table = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    # A `map` keeps the stream's time alone, which is the last instant in the window.
    rest = "* EXCLUDE (window_end)" if "window_end" in table.schema.names else "*"
    return duckdb.from_arrow(table).project(f"{rest}, (epoch_us(window_time) + 1) // 1000000 AS window_end").pl()


def agree(got: pl.DataFrame, wanted: pl.DataFrame) -> None:
    """Row for row; floats up to the rounding of DuckDB's sums."""
    by = wanted.columns[:2]
    assert_frame_equal(got.select(wanted.columns).sort(by), wanted.sort(by), rel_tol=1e-12, abs_tol=1e-9)


@pytest.mark.parametrize("output", ["all", "latest"])
def test_mean_speed_of_each_ship_over_ten_minutes_every_minute(
    spark: SparkSession, tmp_path: Path, output: Any
) -> None:
    """Far from the order of time, and 352 rows of another time of day, whose windows stay open."""

    def closing(rows: list[str]) -> str:
        return ",".join(["1", "2022-01-03T00:59:59", *rows[0].split(",")[2:]])

    in_parts("ais.csv.gz", tmp_path / "feed", closing)
    path = tmp_path / "table"
    speeds = (
        stream_of(spark, tmp_path / "feed", "MMSI", "BaseDateTime", progressDelay="906 seconds")
        .window("10 minutes", "1 minute", output=output, shards=4, checkpoint_location=str(path) + "_checkpoint")
        .agg(n=count(), speed=avg("SOG"))
    )
    got = table_of(speeds, path, output == "all")
    every = f"""
        WITH placed AS (
            SELECT MMSI, SOG,
                unnest(range(epoch(BaseDateTime)::BIGINT // 60, (epoch(BaseDateTime)::BIGINT + 600) // 60)) AS window_id
            FROM read_csv('{RECORDED}/ais.csv.gz') WHERE BaseDateTime < '2022-01-03 01:00'
        )
        SELECT MMSI, window_id, (window_id + 1) * 60 AS window_end, count(*) AS n, avg(SOG) AS speed
        FROM placed GROUP BY ALL
    """
    if output == "latest":
        every = f"SELECT * FROM ({every}) QUALIFY window_id = max(window_id) OVER (PARTITION BY MMSI)"
    wanted = duckdb.sql(every).pl()
    assert wanted["MMSI"].n_unique() > 10_000
    agree(got, wanted)


def test_queries_of_each_host_over_five_minutes_every_ten_seconds(spark: SparkSession, tmp_path: Path) -> None:
    """A quarter of the rows out of order, and a few hosts that ask most."""
    last = 1521912990 + 2000

    def closing(rows: list[str]) -> str:
        fields = rows[-1].split("\t")
        return "\t".join([f"{last}.000000", fields[1], "closing", *fields[3:]])

    in_parts("dns.log.gz", tmp_path / "feed", closing)
    path = tmp_path / "table"
    queries = (
        stream_of(spark, tmp_path / "feed", "id.orig_h", "ts", progressDelay="671 seconds")
        .window("5 minutes", "10 seconds", output="all", shards=4, checkpoint_location=str(path) + "_checkpoint")
        .agg(n=count())
    )
    got = table_of(queries, path, every=True)
    with gzip.open(RECORDED / "dns.log.gz", "rt") as file:
        rows = [line.split("\t") for line in file if not line.startswith("#")]
    asked = pa.table({"host": [row[2] for row in rows], "s": [int(float(row[0])) for row in rows]})
    wanted = duckdb.sql(
        """SELECT host AS "id.orig_h", window_id, (window_id + 1) * 10 AS window_end, count(*) AS n
        FROM (SELECT host, unnest(range(s // 10, (s + 300) // 10)) AS window_id FROM asked) GROUP BY ALL"""
    ).pl()
    assert wanted.height > 3000
    assert int(asked.num_rows) == 53_615
    agree(got, wanted)


def test_distance_of_each_bus_over_fifteen_minutes_every_minute(spark: SparkSession, tmp_path: Path) -> None:
    """The recording has positions and no distances: a window collects its positions, a map adds up the way between
    them.
    """

    def closing(rows: list[str]) -> str:
        fields = rows[-1].split(",")
        return ",".join(["1", "2016-11-25T00:27:00-06:00", *fields[2:]])

    def way(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Kilometres along the positions of each window."""
        latitudes = batch.column("latitude")
        row = np.repeat(np.arange(batch.num_rows), pc.list_value_length(latitudes).to_numpy())
        lat, lon = (np.radians(batch.column(name).flatten().to_numpy()) for name in ("latitude", "longitude"))
        square = np.sin(np.diff(lat) / 2) ** 2 + np.cos(lat[1:]) * np.cos(lat[:-1]) * np.sin(np.diff(lon) / 2) ** 2
        inside = row[1:] == row[:-1]
        km = np.bincount(row[1:][inside], 2 * 6371 * np.arcsin(np.sqrt(square[inside])), batch.num_rows)
        return pa.record_batch([batch.column("window_id"), pa.array(km, pa.float64())], ["window_id", "km"])

    in_parts("buses-2016-11-24.csv.gz", tmp_path / "feed", closing, by=1)
    path = tmp_path / "table"
    distances = (
        stream_of(spark, tmp_path / "feed", "vehicle_id", "timestamp", progress="ordered")
        .window("15 minutes", "1 minute", output="all", shards=4, checkpoint_location=str(path) + "_checkpoint")
        .agg(**{name: collect(name, by="timestamp", limit=1000) for name in ("latitude", "longitude")})
        .map(way, "window_id BIGINT, km DOUBLE")
    )
    got = table_of(distances, path, every=True)
    wanted = duckdb.sql(
        f"""WITH placed AS (
            SELECT vehicle_id, timestamp, radians(latitude) AS lat, radians(longitude) AS lon, epoch(timestamp)::BIGINT
            AS s,
                unnest(range(s // 60, (s + 900) // 60)) AS window_id
            FROM read_csv('{RECORDED}/buses-2016-11-24.csv.gz')
        ), hops AS (
            SELECT *, lag(lat) OVER before AS lat0, lag(lon) OVER before AS lon0
            FROM placed WINDOW before AS (PARTITION BY vehicle_id, window_id ORDER BY timestamp)
        )
        SELECT vehicle_id, window_id, (window_id + 1) * 60 AS window_end, coalesce(sum(2 * 6371 * asin(sqrt(
            sin((lat - lat0) / 2) ** 2 + cos(lat) * cos(lat0) * sin((lon - lon0) / 2) ** 2))), 0) AS km
        FROM hops GROUP BY ALL"""
    ).pl()
    assert wanted.height > 50_000
    assert wanted["km"].max() > 5
    agree(got, wanted)
