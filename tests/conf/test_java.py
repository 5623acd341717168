"""No Java, or a wrong one: a plain sentence. ``java -version`` is the interface, so scripts stand in for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_java_home_goes_before_the_path_and_may_be_wrong(tmp_path):
    assert "JAVA_HOME is" in refusal(JAVA_HOME=str(tmp_path / "nowhere"), PATH=os.environ["PATH"])
    _fake(tmp_path, "echo 'openjdk version \"21.0.3\" 2024-04-16' >&2")
    assert _run_alone(JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"]).returncode == 0


def test_this_machine_is_fine_and_a_python_too_old_or_too_new_is_not(monkeypatch):
    assert (java.java_problem(), java.python_problem()) == (None, None)
    for version in ((3, 9, 18), (3, 13, 0)):
        monkeypatch.setattr(java.sys, "version_info", version)
        assert "runs on Python 3.10 to 3.12" in (java.python_problem() or "")
