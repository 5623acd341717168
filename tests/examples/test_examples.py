"""The examples run as a reader would run them, and their tables are right."""

import dataclasses
import datetime as dt
import gzip
import json
import os
import re
import sys
from pathlib import Path

import polars as pl
import pytest
from kit import golden, programs
from kit.connect import connect_environment
from kit.places import BUSES, EXAMPLES, RECORDED, needs_recorded
from polars.testing import assert_frame_equal

pytestmark = pytest.mark.spark


def run(script: str | Path, *arguments: str | Path, cwd: Path, **environment: str) -> str:
    given = {**os.environ, "COLUMNS": "200", **environment}
    done = programs.run(sys.executable, EXAMPLES / script, *arguments, cwd=cwd, env=given)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Python worker" not in done.stderr  # Spark's account of its own steps
    assert "doesn't contain key" not in done.stderr  # nor of each key that state does not hold yet
    return done.stdout


JOBS = {
    "latest": ("latest_job.py", *f"--from {BUSES} --key vehicle_id --event-time timestamp --to latest --once".split()),
    "read": ("read_table.py", "latest"),
    "with_sql": ("with_sql.py", "--to", "fast"),
    "foreach_batch": ("foreach_batch.py", "--to", "routes"),
    "windows": ("windows.py", "--to", "speeds"),
    "routes": ("joins.py", "routes", "--to", "now_on_routes"),
    "bunching": ("joins.py", "bunching", "--to", "bunching"),
    "ships": ("joins.py", "ships", "--from", "ais.csv", "--to", "ships"),
}


@dataclasses.dataclass(frozen=True)
class Ran:
    """Where jobs ran, and whether each came to its end, and what it printed."""

    folder: Path
    jobs: dict[str, tuple[bool, str]]

    def output(self, job: str) -> str:
        ended, printed = self.jobs[job]
        assert ended, printed[-4000:]
        if job == "read":
            # What DuckDB printed is left out: routes with as many buses may come in any order.
            lines = [line for line in printed.splitlines() if "│" not in line or "┆" in line]
            golden.check("examples", job, lines)
        else:
            table = " ".join(JOBS[job]).split("--to ")[1].split()[0]
            golden.check("examples", job, golden.tables(self.folder, table))
        return printed


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """All jobs have run, in one process: to start Java for each takes longer than most of them."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs = dict(JOBS)
    if RECORDED.is_dir():
        with gzip.open(RECORDED / "ais.csv.gz", "rt") as recording:
            (folder / "ais.csv").write_text("".join(line for _, line in zip(range(20_001), recording, strict=False)))
    else:
        del jobs["ships"]
    given = json.dumps([(str(EXAMPLES / script), *arguments) for script, *arguments in jobs.values()])
    printed = run(Path(__file__).with_name("run_jobs.py"), given, cwd=folder)
    return Ran(folder, dict(zip(jobs, json.loads(printed.splitlines()[-1]), strict=True)))


def newest(rows: pl.DataFrame, key: str, time: str) -> pl.DataFrame:
    return rows.with_row_index("arrival").sort(time, "arrival").group_by(key).last()


def test_latest_job_and_three_readers(ran):
    ran.output("latest")
    read = ran.output("read")
    assert "151 keys of 16759 updates" in read  # from the commit
    assert "2302" in read  # Polars: the fastest bus
    assert "│" in read  # DuckDB
    assert "|  151|" in read  # Spark SQL


def test_with_sql(ran):
    assert "kmh" in ran.output("with_sql")
    rows = pl.read_csv(BUSES, try_parse_dates=True).filter(pl.col("speed") > 0)
    expected = newest(rows, "vehicle_id", "timestamp").filter(pl.col("latitude").is_between(30.0, 30.6))
    got = pl.read_delta(str(ran.folder / "fast"))
    assert set(got["vehicle_id"]) == set(expected["vehicle_id"])
    assert got["kmh"].sum() == pytest.approx(expected["speed"].sum() * 3.6)
    assert set(got["route"].drop_nulls()) <= {"Metro", "Duval", "First", "Manor", "Govalle", "North Lamar", "Burnet"}


def test_foreach_batch(ran):
    assert "fastest" in ran.output("foreach_batch")
    rows = pl.read_csv(BUSES).filter(pl.col("route_id").is_not_null())
    expected = rows.group_by("route_id").agg(pl.len().alias("positions"), pl.col("speed").max().alias("fastest"))
    got = pl.read_delta(str(ran.folder / "routes")).select("route_id", "positions", "fastest").sort("route_id")
    assert_frame_equal(got, expected.sort("route_id"), check_dtypes=False)


def test_windows(ran):
    assert "window_end" in ran.output("windows")
    # The latest window of each bus that is complete, and the positions in it.
    rows = pl.read_csv(BUSES, try_parse_dates=True).with_columns(s=pl.col("timestamp").dt.epoch("s"))
    complete = (rows["s"].cast(pl.Int64).to_numpy().max() - 300) // 60 - 1
    closed = (
        rows.filter(pl.col("s") // 60 <= complete).group_by("vehicle_id").agg(last=(pl.col("s").max() + 900) // 60 - 1)
    )
    windows = closed.with_columns(window_id=pl.min_horizontal("last", pl.lit(complete)))
    inside = rows.join(windows, on="vehicle_id").filter(
        pl.col("s").is_between((pl.col("window_id") + 1) * 60 - 900, (pl.col("window_id") + 1) * 60, closed="left")
    )
    expected = inside.group_by("vehicle_id", "window_id").agg(
        pl.len().alias("positions").cast(pl.Int64), pl.col("speed").mean(), pl.col("speed").max().alias("top")
    )
    got = pl.read_delta(str(ran.folder / "speeds"))
    assert got.height > 140
    assert_frame_equal(got.select(expected.columns), expected, check_row_order=False, check_dtypes=False)


def test_joins_buses_with_routes(ran):
    assert "route" in ran.output("routes")
    rows = pl.read_csv(BUSES, try_parse_dates=True)
    names = pl.read_csv(ran.folder / "now_on_routes_routes" / "first.csv")
    expected = (
        newest(rows, "vehicle_id", "timestamp")
        .join(names, on="route_id")
        .group_by("route")
        .agg(pl.len().alias("buses").cast(pl.Int64), pl.col("speed").mean())
    )
    assert expected.height == 7
    got = pl.read_delta(str(ran.folder / "now_on_routes"))
    assert_frame_equal(got.select(expected.columns), expected, check_row_order=False)


def test_joins_buses_that_bunch(ran):
    assert "vehicle_id" in ran.output("bunching")
    rows = pl.read_csv(BUSES, try_parse_dates=True).filter(pl.col("route_id").is_not_null())
    rows = rows.with_columns(
        (100 * pl.col(name)).floor().cast(pl.Int64).alias(place)
        for name, place in (("latitude", "north"), ("longitude", "east"))
    )
    pairs = rows.join(rows, on=["route_id", "trip_headsign", "north", "east"]).filter(
        pl.col("vehicle_id") < pl.col("vehicle_id_right"),
        (pl.col("timestamp") - pl.col("timestamp_right")).abs() <= dt.timedelta(minutes=1),
    )
    assert pairs.height > 20
    columns = ["vehicle_id", "timestamp", "vehicle_id_right", "timestamp_right"]
    got = pl.read_delta(str(ran.folder / "bunching")).select(columns)
    assert_frame_equal(got, pairs.select(columns), check_row_order=False, check_dtypes=False)


@needs_recorded
def test_joins_ships_near_ports(ran):
    assert "port" in ran.output("ships")
    ships = newest(pl.read_csv(ran.folder / "ais.csv", try_parse_dates=True), "MMSI", "BaseDateTime")
    ports = pl.read_csv(ran.folder / "ships_ports" / "first.csv").select("port", "port_lat", "port_lon").unique()
    north, east = pl.col("LAT") - pl.col("port_lat"), pl.col("LON") - pl.col("port_lon")
    km = 111.2 * (north**2 + (east * pl.col("port_lat").radians().cos()) ** 2).sqrt()
    expected = (
        ships.join(ports, how="cross").with_columns(km.alias("km_from_port")).filter(pl.col("km_from_port") <= 20)
    )
    assert expected.height > 100
    columns = ["MMSI", "port", "km_from_port"]
    got = pl.read_delta(str(ran.folder / "ships")).select(columns)
    assert_frame_equal(got, expected.select(columns), check_row_order=False)


@pytest.mark.long
def test_connect(tmp_path):
    output = run("connect.py", "--to", "speeds", cwd=tmp_path, **connect_environment())
    assert "window_end" in output
    assert pl.read_delta(str(tmp_path / "speeds")).height > 140
    golden.check("examples", "connect", golden.tables(tmp_path))


@pytest.mark.long
def test_demo_kafka(tmp_path):
    output = run("demo_kafka.py", "--seconds", "12", cwd=tmp_path)
    assert "vehicles/1 (30 s behind): complete to" in output
    # The newest row of each partition, as DuckDB has read it: all keys are there, and as fresh as their partition.
    rows = re.findall(r"│ (\d) +│ +500 │ (\S+ \S+) +│", output)
    newest = {part: dt.datetime.fromisoformat(at + ":00") for part, at in rows}
    assert newest.keys() == {"0", "1", "2"}
    assert 28 < (newest["0"] - newest["1"]).total_seconds() < 32
    assert newest["2"] < newest["0"]


def test_recording_is_credited_and_in_order():
    assert "Sean Cascketta" in (EXAMPLES.parent / "NOTICE").read_text()
    assert pl.read_csv(BUSES, try_parse_dates=True)["timestamp"].is_sorted()
