"""No Java, a wrong one, a reduced one: one plain sentence each. ``java -version`` is the interface, so scripts stand in
for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from upstream.conf import java

FILE = Path(java.__file__)


def _fake(folder: Path, script: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n" + script)
    binary.chmod(0o755)
    return binary


def _run_alone(**environment: str) -> subprocess.CompletedProcess[str]:
    """As the Makefile does: by path, with nothing installed (``-I`` hides even the package)."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(FILE)], env=environment, capture_output=True, text=True, check=False
    )


def test_this_machine_is_fine() -> None:
    assert java.java_problem() is None
    assert java.python_problem() is None


def test_file_runs_by_its_path_with_nothing_installed() -> None:
    done = _run_alone(**os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_java(tmp_path: Path) -> None:
    done = _run_alone(PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("There is no Java")
    assert "install a JDK 17 or 21" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "25" 2025-09-16', 25),
    ],
)
def test_wrong_java(tmp_path: Path, printed: str, version: int) -> None:
    _fake(tmp_path, f"echo '{printed}' >&2\n")
    done = _run_alone(PATH=str(tmp_path / "bin") + ":/usr/bin:/bin")
    assert done.returncode == 1
    assert f"is Java {version}" in done.stderr
    assert "17 or 21" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_java_without_the_vector_module(tmp_path: Path) -> None:
    script = """[ "$1" = --add-modules ] && { echo 'Module jdk.incubator.vector not found' >&2; exit 1; }
echo 'openjdk version "17.0.1"' >&2\n"""
    _fake(tmp_path, script)
    done = _run_alone(JAVA_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "reduced runtime" in done.stderr


def test_java_home_goes_before_the_path_and_may_be_wrong(tmp_path: Path) -> None:
    done = _run_alone(JAVA_HOME=str(tmp_path / "nowhere"), PATH=os.environ["PATH"])
    assert done.returncode == 1
    assert "JAVA_HOME is" in done.stderr
    _fake(tmp_path, "echo 'openjdk version \"21.0.3\" 2024-04-16' >&2\n")
    assert _run_alone(JAVA_HOME=str(tmp_path), PATH=os.environ["PATH"]).returncode == 0


def test_something_called_java_that_is_not(tmp_path: Path) -> None:
    _fake(tmp_path, "exit 3\n")
    done = _run_alone(JAVA_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "does not say its version" in done.stderr


def test_python_too_old_or_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ((3, 9, 18), (3, 13, 0)):
        monkeypatch.setattr(java.sys, "version_info", version)
        assert "runs on Python 3.10 to 3.12" in (java.python_problem() or "")
