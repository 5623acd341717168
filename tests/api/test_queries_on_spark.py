"""Queries of a job that runs, changed by another process or a browser: each takes effect without a restart."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kit.feeds import write_csv
from kit.programs import run_command
from kit.waiting import wait_for
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

import upstream as us
from upstream.conf.errors import TableError
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

pytestmark = pytest.mark.spark

COUNT = "SELECT COUNT(*) AS n FROM LATEST(buses)"


def opened(spark: SparkSession, place: Path) -> us.Queries:
    """What a program does each time it starts."""
    (place / "feed").mkdir(exist_ok=True)
    queries = us.queries(spark, checkpoint=place / "cp", to=place / "lake", shards=2)
    stream = us.read(
        spark, place / "feed", key="bus", event_time="t", schema="bus STRING, t TIMESTAMP, speed BIGINT",
        fileFormat="csv", watermark_delay="5 seconds",
    )  # fmt: skip
    queries.source("buses", stream)
    queries.create("fleet", COUNT)
    return queries


def arrive(place: Path, file: int, *rows: tuple[str, int, int]) -> None:
    cells = [[bus, f"2026-01-01 00:00:{second:02d}", speed] for bus, second, speed in rows]
    write_csv(place / "feed" / f"{file}.csv", "bus,t,speed", cells)


def browser(checkpoint: Path) -> TestClient:
    app = create_app(Watch([str(checkpoint)], {}), token="token", hosts=["testserver"])
    return TestClient(app, headers={"Authorization": "Bearer token"})


def test_another_process_changes_what_runs(spark, tmp_path):
    queries = opened(spark, tmp_path)
    arrive(tmp_path, 1, ("a", 1, 10), ("b", 2, 20))
    job = queries.start(name="lake", processingTime="0 seconds")

    def there(name: str, seen: Callable[[pl.LazyFrame], object], wanted: object) -> None:
        def found() -> bool:
            try:
                return seen(queries.scan(name)) == wanted
            except TableError:
                return False

        wait_for(found, job.exception, f"{name}: {wanted}")

    def has(name: str, *rows: tuple[object, ...]) -> None:
        there(name, lambda table: sorted(table.collect().rows()), sorted(rows))

    def begun(name: str, *columns: str) -> None:
        there(name, lambda table: table.collect_schema().names(), [*columns])

    def told(statement: str) -> None:
        done = run_command("sql", statement, "--checkpoint", tmp_path / "cp")
        assert done.returncode == 0, done.stderr

    try:
        assert job.name == "lake"
        has("fleet", (2,))
        told("CREATE MATERIALIZED VIEW fast AS SELECT bus, speed FROM LATEST(buses) WHERE speed > 15")
        begun("fast", "bus", "speed")
        arrive(tmp_path, 2, ("a", 11, 30), ("b", 12, 10), ("c", 13, 40))
        has("fleet", (3,))
        has("fast", ("a", 30), ("c", 40))
        with browser(tmp_path / "cp") as page:
            text = "SELECT bus, speed + 1 AS more FROM LATEST(buses) WHERE speed > 35"
            assert page.patch("/api/v1/queries/fast", json={"query": text}).status_code == 200
        begun("fast", "bus", "more")
        arrive(tmp_path, 3, ("a", 21, 20), ("c", 22, 50), ("d", 23, 0))
        has("fleet", (4,))
        has("fast", ("c", 51))
        fleet = pl.col("name") == "fleet"
        wait_for(lambda: (queries.list().filter(fleet)["staleness"][0] or 0) > 0, job.exception, "a staleness")
        told("DROP MATERIALIZED VIEW fast")
        arrive(tmp_path, 4, ("e", 31, 60))
        has("fleet", (5,))
    finally:
        job.stop()
    # The program starts again: what was dropped stays so.
    again = opened(spark, tmp_path)
    assert again.list()["name"].to_list() == ["fleet"]
    arrive(tmp_path, 5, ("f", 41, 70))
    again.start(availableNow=True).awaitTermination()
    assert again.scan("fleet").collect().rows() == [(6,)]
    dropped = us.LatestTable(tmp_path / "lake" / "fast").scan(["bus"]).collect()["bus"].to_list()
    assert "c" in dropped, "its table stays"
    assert "f" not in dropped


def test_a_stream_meets_a_stored_relation_while_the_job_runs_and_after_a_restart(spark, tmp_path):
    table = str(tmp_path / "names")
    write_deltalake(table, pa.table({"bus": ["a", "b"], "name": ["Ada", "Bob"]}))
    queries = opened(spark, tmp_path)
    queries.table("names", table)
    arrive(tmp_path, 1, ("a", 1, 10), ("b", 2, 20), ("c", 3, 30))
    job = queries.start(processingTime="0 seconds")

    def has(name: str, *rows: tuple[object, ...]) -> None:
        def there() -> bool:
            location = str(tmp_path / "lake" / name)
            if not DeltaTable.is_deltatable(location):
                return False
            found = DeltaTable(location).to_pyarrow_dataset()  # noqa: F841 DuckDB reads it
            return duckdb.sql("SELECT bus, name FROM found ORDER BY ALL").fetchall() == list(rows)

        wait_for(there, job.exception, f"{name} = {rows}")

    try:
        wait_for(lambda: DeltaTable.is_deltatable(str(tmp_path / "lake" / "fleet")), job.exception, "the first table")
        queries.create("named", "SELECT b.bus, r.name FROM LATEST(buses) b LEFT JOIN names r ON b.bus = r.bus")
        queries.create("none", "SELECT bus, name FROM names WHERE bus NOT IN (SELECT bus FROM LATEST(buses))")
        has("named", ("a", "Ada"), ("b", "Bob"), ("c", None))
        has("none")
        # What the table becomes does not matter, until somebody says so; then the queries begin again.
        write_deltalake(table, pa.table({"bus": ["b", "c", "d"], "name": ["Bo", "Cy", "Di"]}), mode="overwrite")
        arrive(tmp_path, 2, ("d", 11, 10))
        has("named", ("a", "Ada"), ("b", "Bob"), ("c", None), ("d", None))
        done = run_command("sql", "REFRESH TABLE names", "--checkpoint", tmp_path / "cp")
        assert done.returncode == 0, done.stderr
        has("named", ("a", None), ("b", "Bo"), ("c", "Cy"), ("d", "Di"))
        has("none")
    finally:
        job.stop()
    again = opened(spark, tmp_path)
    again.table("names", table)
    assert again.tables() == {"names": f"version 1 of {table}"}
    arrive(tmp_path, 3, ("b", 31, 10), ("e", 32, 10))
    again.start(availableNow=True).awaitTermination()
    has("named", ("a", None), ("b", "Bo"), ("c", "Cy"), ("d", "Di"), ("e", None))
    assert again.list()["active"].all()
