"""A declarative pipeline as `spark-pipelines run` runs it: the example, on the recording."""

import os
import shutil
import sys
from pathlib import Path

import polars as pl
import pyspark
import pytest
from kit import golden
from kit.connect import connect_environment
from kit.places import BUSES, EXAMPLES
from kit.programs import Done, run

import upstream

pytestmark = pytest.mark.spark


def pipeline(folder: Path) -> Path:
    """A copy of the example that keeps its tables and checkpoints beside it."""
    project = shutil.copytree(EXAMPLES / "pipeline", folder / "pipeline")
    file = project / "spark-pipeline.yml"
    text = file.read_text().replace("/tmp/upstream-pipeline", f"{folder}/storage").replace("../data", f"{BUSES.parent}")
    assert str(folder) in text
    file.write_text(text)
    return project


def run_pipeline(project: Path) -> Done:
    home = Path(pyspark.__file__).parent
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    given = {**os.environ, **connect_environment(), **python, "SPARK_HOME": str(home)}
    local = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    command = home / "bin" / "spark-pipelines"
    return run(command, "run", "--remote", "local[2]", *local, cwd=project, env=given)


def test_the_example(tmp_path):
    done = run_pipeline(pipeline(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr
    rows = pl.read_csv(BUSES, try_parse_dates=True)
    newest = upstream.LatestTable(tmp_path / "storage" / "newest").scan(["vehicle_id", "timestamp"]).collect()
    assert dict(newest.iter_rows()) == dict(rows.group_by("vehicle_id").agg(pl.col("timestamp").max()).iter_rows())
    speeds = upstream.LatestTable(tmp_path / "storage" / "speeds")
    assert speeds.scan().collect().height > 140
    golden.check("examples", "pipeline", golden.tables(tmp_path / "storage"))
    # The operators report below the checkpoint that Spark gave the flow.
    checkpoint = tmp_path / "storage" / "_checkpoints" / "speeds" / "speeds_of_buses" / "0"
    assert (checkpoint / "commits").is_dir()
    assert [*checkpoint.glob("upstream*")]
