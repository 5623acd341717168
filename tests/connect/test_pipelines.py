"""A declarative pipeline as `spark-pipelines run` runs it: the example, on the recording; and what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import polars as pl
import pyspark
import pytest
from kit.connect import connect_environment
from kit.places import BUSES, EXAMPLES
from kit.programs import Done, run

import upstream

pytestmark = pytest.mark.spark


def pipeline(folder: Path, configuration: str = "") -> Path:
    """A copy of the example that keeps its tables and checkpoints beside it."""
    project = shutil.copytree(EXAMPLES / "pipeline", folder / "pipeline")
    file = project / "spark-pipeline.yml"
    text = file.read_text().replace("/tmp/upstream-pipeline", f"{folder}/storage").replace("../data", f"{BUSES.parent}")
    assert str(folder) in text
    file.write_text(text + configuration)
    return project


def run_pipeline(project: Path) -> Done:
    given = connect_environment()
    local = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    return run(command, "run", "--remote", "local[2]", *local, cwd=project, env={**os.environ, **given}, timeout=300)


def test_the_example(tmp_path: Path) -> None:
    done = run_pipeline(pipeline(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr
    rows = pl.read_csv(BUSES, try_parse_dates=True)
    newest = upstream.LatestTable(tmp_path / "storage" / "newest").rows(["vehicle_id", "timestamp"]).collect()
    assert dict(newest.iter_rows()) == dict(rows.group_by("vehicle_id").agg(pl.col("timestamp").max()).iter_rows())
    speeds = upstream.LatestTable(tmp_path / "storage" / "speeds")
    assert speeds.rows().collect().height > 140
    # The operators report below the checkpoint that Spark gave the flow.
    checkpoint = tmp_path / "storage" / "_checkpoints" / "speeds" / "speeds_of_buses" / "0"
    assert (checkpoint / "commits").is_dir()
    assert [*checkpoint.glob("upstream*")]


def test_a_window_without_rocksdb_is_refused_where_the_pipeline_is_read(tmp_path: Path) -> None:
    project = pipeline(tmp_path)
    file = project / "spark-pipeline.yml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "RocksDB" not in line))
    done = run_pipeline(project)
    assert done.returncode != 0
    assert "EnvironmentMissingError: the session keeps state with" in done.stdout + done.stderr
    assert not (tmp_path / "storage" / "newest").exists()
