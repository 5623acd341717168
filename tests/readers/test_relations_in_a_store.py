"""Stored relations in an object store, whose options are given when the queries are opened, and are in no file."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kit.feeds import write_csv
from kit.programs import run_command
from kit.registries import begun, register

import upstream as us
from upstream.conf.errors import TableError
from upstream.hosting.host_plan import HostPlan
from upstream.hosting.registry import registry_now
from upstream.hosting.scan import stored_rows

from .stored import SECRETS

NAMED = "SELECT b.vehicle_id, r.name FROM LATEST(buses) AS b JOIN routes AS r ON b.route_id = r.id"


def _rows(checkpoint: str, storage: dict[str, str]) -> list[tuple[object, ...]]:
    plan = HostPlan.of(registry_now(checkpoint), range(2))
    fragment = next(each for query in plan.queries.values() for each in query.fragments)
    return sorted(
        row for shard in range(2) for row in stored_rows(fragment.routes, shard, 2, storage)["routes"]().iter_rows()
    )


def test_a_relation_is_declared_read_and_refreshed(tmp_path, storage):
    place = f"s3://lake/{tmp_path.name}/routes"
    write_deltalake(place, pa.table({"id": ["a"], "name": ["north"]}), storage_options=storage)
    checkpoint = begun(tmp_path)
    with pytest.raises(TableError):
        us.queries(checkpoint=checkpoint).table("routes", place)
    queries = us.queries(checkpoint=checkpoint, **{f"storage.{name}": value for name, value in storage.items()})
    queries.table("routes", place)
    register(checkpoint, "named", NAMED)
    assert _rows(checkpoint, storage) == [("a", "north")]
    write_deltalake(place, pa.table({"id": ["b"], "name": ["south"]}), mode="append", storage_options=storage)
    assert _rows(checkpoint, storage) == [("a", "north")]
    queries.refresh("routes")
    assert _rows(checkpoint, storage) == [("a", "north"), ("b", "south")]
    written = b"".join(each.read_bytes() for each in Path(checkpoint).rglob("*") if each.is_file())
    assert b"routes" in written
    assert not any(secret.encode() in written for secret in SECRETS.values())


def test_the_command_line_takes_the_options_of_the_store(tmp_path, storage):
    place = f"s3://lake/{tmp_path.name}/routes"
    write_deltalake(place, pa.table({"id": ["a"], "name": ["north"]}), storage_options=storage)
    checkpoint = begun(tmp_path)
    options = [part for name, value in storage.items() for part in ("--option", f"storage.{name}={value}")]
    declared = f"CREATE TABLE routes FROM '{place}'"
    assert run_command("sql", declared, "--checkpoint", checkpoint).returncode != 0
    for version, statement in enumerate((declared, "REFRESH TABLE routes")):
        done = run_command("sql", statement, "--checkpoint", checkpoint, *options)
        assert done.returncode == 0, done.stderr
        assert us.queries(checkpoint=checkpoint).tables()["routes"] == f"version {version} of {place}"
        write_deltalake(place, pa.table({"id": ["b"], "name": ["south"]}), mode="append", storage_options=storage)


@pytest.mark.long
def test_a_job_reads_a_relation_and_keeps_its_results_in_the_store(spark, tmp_path, storage):
    lake = f"s3://lake/{tmp_path.name}"
    names = pa.table({"id": ["1", "2"], "name": ["north", "south"]})
    write_deltalake(f"{lake}-routes", names, storage_options=storage)
    (tmp_path / "feed").mkdir()
    write_csv(tmp_path / "feed" / "1.csv", "bus,t,route", [["a", "2026-01-01 00:00:01", 2]])
    options = {f"storage.{name}": value for name, value in storage.items()}
    queries = us.queries(spark, checkpoint=tmp_path / "cp", to=lake, shards=2, **options)
    stream = us.read(
        spark, tmp_path / "feed", key="bus", event_time="t", schema="bus STRING, t TIMESTAMP, route STRING",
        fileFormat="csv",
    )  # fmt: skip
    queries.source("buses", stream)
    queries.table("routes", f"{lake}-routes")
    queries.create("named", "SELECT b.bus, r.name FROM LATEST(buses) AS b JOIN routes AS r ON b.route = r.id")
    queries.start(availableNow=True).awaitTermination()
    assert queries.list().filter(pl.col("name") == "named").get_column("reason").to_list() == [None]
    assert queries.scan("named").select("bus", "name").collect().rows() == [("a", "south")]
