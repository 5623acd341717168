"""No Java, no Spark, or a wrong one: a plain sentence. Scripts stand in for a Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_upstream
import upstream
from upstream.conf import java

FILE = Path(java.__file__)


def _fake(folder: Path, script: str) -> None:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)


def _run_alone(**environment: str) -> subprocess.CompletedProcess[str]:
    """As the Makefile does: by path, with nothing installed (``-I`` hides even the package)."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(FILE)], env=environment, capture_output=True, text=True, check=False
    )


def refusal(**environment: str) -> str:
    done = _run_alone(**environment)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_file_runs_by_its_path_with_nothing_installed_and_finds_this_machine_fine():
    done = _run_alone(**os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_java(tmp_path):
    assert "There is no Java" in refusal(PATH=str(tmp_path))


NO_VECTORS = """[ "$1" = --add-modules ] && { echo 'Module jdk.incubator.vector not found' >&2; exit 1; }
echo 'openjdk version "17.0.1"' >&2"""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
        ("echo 'java version \"1.8.0_401\"' >&2", "is Java 8"),
        ("echo 'openjdk version \"25\" 2025-09-16' >&2", "is Java 25"),
        ("exit 3", "does not say its version"),
        (NO_VECTORS, "reduced runtime"),
    ],
)
def test_a_java_that_does_not_do(tmp_path, script, words):
    _fake(tmp_path, script)
    assert words in refusal(PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert words in refusal(JAVA_HOME=str(tmp_path), PATH="/usr/bin:/bin")


def test_the_release_of_a_jdk_spares_the_start_of_its_jvm_if_spark_runs_on_it(tmp_path):
    _fake(tmp_path, "exit 3")
    path = {"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    release = tmp_path / "release"
    release.write_text('JAVA_VERSION="21.0.3"\nMODULES="java.base jdk.incubator.vector"\n')
    assert _run_alone(**path).returncode == 0
    for text in ('JAVA_VERSION="25"\nMODULES="jdk.incubator.vector"\n', 'JAVA_VERSION="17.0.1"\nMODULES="java.base"\n'):
        release.write_text(text)
        assert "does not say its version" in refusal(**path)


def test_java_home_goes_before_the_path_and_may_be_wrong(tmp_path):
    assert "JAVA_HOME is" in refusal(JAVA_HOME=str(tmp_path / "nowhere"), PATH=os.environ["PATH"])
    _fake(tmp_path, "echo 'openjdk version \"21.0.3\" 2024-04-16' >&2")
    assert _run_alone(JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"]).returncode == 0


def test_this_machine_is_fine_and_a_python_too_old_or_too_new_is_not(monkeypatch):
    assert (java.java_problem(), java.python_problem()) == (None, None)
    for version in ((3, 9, 18), (3, 13, 0)):
        monkeypatch.setattr(java.sys, "version_info", version)
        assert "runs on Python 3.10 to 3.12" in (java.python_problem() or "")


def _with_spark(folder: Path, version: str | None, program: str, **environment: str) -> str:
    """What a program prints where PySpark is of a version, or missing."""
    (folder / "pyspark" / "sql").mkdir(parents=True)
    if version is not None:
        for name in ("__init__", "sql/__init__"):
            (folder / "pyspark" / f"{name}.py").touch()
        (folder / "pyspark" / "version.py").write_text(f"__version__ = {version!r}\n")
        (folder / "pyspark" / "sql" / "datasource.py").write_text(
            "class DataSource:\n    def __init__(self, options):\n        self.options = options\n"
        )
    installed = [str(Path(each.__file__ or "").parent.parent) for each in (upstream, pyspark_upstream)]
    # The installed PySpark comes later on the path, or not at all.
    path = os.pathsep.join([str(folder), *(installed if version is not None else ())])
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, FILE],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


CHECK = "import runpy, sys; print(runpy.run_path(sys.argv[1])['spark_problem']())"


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.5.6", "This is Spark 3.5.6, and UpStream runs on Spark 4.2"),
        ("4.1.0", "This is Spark 4.1.0"),
        ("4.3.0", "This is Spark 4.3.0"),
        ("4.20.0", "This is Spark 4.20.0"),
        (None, "There is no PySpark here"),
        ("4.2.0", "None"),
        ("4.2.7", "None"),
    ],
)
def test_another_spark_or_none_is_one_sentence_that_names_the_remedy(tmp_path, version, words):
    said = _with_spark(tmp_path, version, CHECK)
    assert words in said
    assert said == "None\n" or said.endswith("install 'pyspark>=4.2,<4.3'.\n")


def test_a_spark_home_of_another_version_is_refused_before_any_jvm(tmp_path):
    (tmp_path / "home" / "jars").mkdir(parents=True)
    (tmp_path / "home" / "jars" / "spark-core_2.13-4.1.1.jar").touch()
    said = _with_spark(tmp_path / "other", "4.2.0", CHECK, SPARK_HOME=str(tmp_path / "home"))
    assert f"SPARK_HOME is {tmp_path / 'home'}, which is Spark 4.1.1" in said


def test_the_format_is_refused_by_another_spark(tmp_path):
    program = """
from pyspark_upstream import DefaultSource
from upstream.conf.errors import EnvironmentMissingError
try:
    DefaultSource({})
except EnvironmentMissingError as error:
    print(error)
"""
    assert "This is Spark 4.1.0" in _with_spark(tmp_path, "4.1.0", program)
    assert _with_spark(tmp_path / "fitting", "4.2.1", program) == ""
