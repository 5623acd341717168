"""README's blocks run as they stand there, and give what it shows."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from kit import programs
from kit.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SET_UP, JOB, COMMANDS, SHOWN, PROGRAM, PRINTED = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
"""All blocks in their order: what is in none of them is no command."""


@pytest.fixture
def clone(tmp_path):
    """A folder that has what the commands name in a clone."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def lines(text: str) -> list[str]:
    """Lines without the space at their ends, which the page does not keep."""
    return [line.rstrip() for line in text.splitlines()]


def test_the_job_is_among_the_examples():
    assert (ROOT / "examples" / "buses.sql").read_text(encoding="utf-8") == JOB


@pytest.mark.spark
def test_the_job_in_sql(clone):
    printed = ""
    for line in COMMANDS.splitlines():
        program, *arguments = shlex.split(line)
        done = programs.run(Path(sys.executable).with_name(program), *arguments, cwd=clone)
        assert done.returncode == 0, done.stderr[-3000:]
        printed += done.stdout if arguments[0] == "show" else ""
    assert lines(printed) == lines(SHOWN)


@pytest.mark.spark
def test_the_job_in_python(clone):
    (clone / "job.py").write_text(PROGRAM, encoding="utf-8")
    done = programs.run(sys.executable, "job.py", cwd=clone)
    assert done.returncode == 0, done.stderr[-3000:]
    assert lines(done.stdout) == lines(PRINTED)


@pytest.mark.spark
def test_the_demo_and_the_tests():
    demo, tests = (line.partition("#")[0].split() for line in SET_UP.splitlines())
    assert tests == ["make", "test"]  # which CI runs
    assert "make --no-print-directory test " in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    # The environment of the tests is not made again while they run.
    installed = (f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed")
    done = programs.run(demo[0], "--no-print-directory", *installed, *demo[1:], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the table has 151 keys" in done.stdout
    assert (ROOT / "demo-output" / "staleness.png").read_bytes()[:4] == b"\x89PNG"
