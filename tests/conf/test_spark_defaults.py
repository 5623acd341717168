"""``conf/spark-defaults.conf`` gives spark-submit, really called, what ``upstream.session`` gives a script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import upstream.conf
from upstream.conf.jars import EXCLUDES, PACKAGE
from upstream.conf.session import preset

DEFAULTS = Path(upstream.conf.__file__).with_name("spark-defaults.conf")
LOG4J = DEFAULTS.with_name("log4j2.properties")

JOB = """
import json, sys
from pyspark.sql import SparkSession
from upstream.conf.session import missing, session
spark = SparkSession.builder.getOrCreate() if sys.argv[1] == "plain" else session("told by submit")
spark.range(10).write.format("delta").save(sys.argv[2])
exempt = spark.sparkContext.range(8).map(lambda _: __import__("gc").get_freeze_count())
exempt.collect()
count = spark.sql(f"SELECT count(*) FROM delta.`{sys.argv[2]}`").collect()[0][0]
ours = spark.sparkContext.pythonExec.endswith("worker-python")
names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.app.name"]
set_to = [spark.conf.get(name) for name in names]
print(json.dumps([missing(spark), count, set_to, max(exempt.collect()) > 10_000, ours]))
"""


def _settings() -> dict[str, str]:
    lines = (line.split(None, 1) for line in DEFAULTS.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, value in lines}


def _submit(tmp_path: Path, kind: str, *options: str) -> tuple[list[object], str]:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = Path(pyspark.__path__[0], "bin", "spark-submit")
    done = subprocess.run(
        [submit, "--master", "local[2]", "--properties-file", DEFAULTS, *options, job, kind, tmp_path / "table"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_same_settings_as_the_session():
    own = {"spark.jars.packages": PACKAGE, "spark.jars.excludes": EXCLUDES, "spark.log.level": "WARN"}
    assert _settings() == {**preset(), **own}


@pytest.mark.spark
def test_spark_submit_with_the_properties_file(tmp_path):
    logging = ("--driver-java-options", f"-Dlog4j2.configurationFile={LOG4J.as_uri()}")
    reported, log = _submit(tmp_path, "plain", *logging)
    assert reported == [[], 10, ["200", "UTC", "job.py"], False, False]
    assert " WARN " not in log
    assert " INFO " not in log


@pytest.mark.spark
def test_session_under_spark_submit_keeps_what_submit_was_given(tmp_path):
    settings = ("spark.sql.shuffle.partitions=5", "spark.python.daemon.module=upstream.conf.worker_daemon")
    reported, log = _submit(tmp_path, "session", "--conf", settings[0], "--conf", settings[1])
    assert log.count(" INFO ") < 10, "only those before Spark reads its level"
    assert reported[:2] == [[], 10]
    assert reported[2] == ["5", "UTC", "job.py"] or reported[2] == ["5", "UTC", "told by submit"]
    assert reported[3], "the daemon named has run the workers"
    assert reported[4], "workers print nothing of their own steps"
