"""README's lines run as they stand there."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from kit import programs
from kit.places import ROOT
from kit.waiting import wait_for

UPSTREAM = str(Path(sys.executable).with_name("upstream"))

pytestmark = pytest.mark.spark


def block(holds: str) -> str:
    """The fenced lines that hold a text."""
    blocks = re.findall(r"```\w*\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (each for each in blocks if holds in each)
    return found


@pytest.fixture
def feed(tmp_path):
    """Vehicles whose newest positions are moving, and one that has stopped."""
    folder = tmp_path / "feed"
    folder.mkdir()
    rows = [
        "a,2024-01-01 00:00:01,10",
        "b,2024-01-01 00:00:02,20",
        "a,2024-01-01 00:00:03,30",
        "b,2024-01-01 00:00:04,0",
    ]
    (folder / "first.csv").write_text("\n".join(["vehicle_id,timestamp,speed", *rows]) + "\n")
    return tmp_path


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that goes on until it is interrupted."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def speeds(command: Sequence[str], folder: Path) -> dict[str, float]:
    """The rows of the table that a program writes, as soon as there are any."""
    found: dict[str, float] = {}

    def written() -> bool:
        if any((folder / "latest" / "_delta_log").glob("*.json")):
            rows = pl.read_delta(str(folder / "latest")).select("vehicle_id", "speed")
            found.update((str(key), float(speed)) for key, speed in rows.iter_rows())
        return bool(found)

    with running(command, folder) as process:
        wait_for(written, process.poll, "a row in the table")
    return found


def test_the_lines_of_python(feed):
    (feed / "job.py").write_text(block("us.session()"))
    assert speeds([sys.executable, "job.py"], feed) == {"a": 30.0, "b": 20.0}


def test_the_lines_for_the_shell(feed):
    latest, show = (shlex.split(line)[1:] for line in block("upstream latest --from").splitlines())
    assert speeds([UPSTREAM, *latest], feed) == {"a": 30.0, "b": 0.0}
    shown = programs.run(UPSTREAM, *show, cwd=feed).stdout
    assert "30" in shown
    assert "2024-01-01 00:00:04" not in shown, "it has stopped, so the filter leaves it out"


def test_the_continuous_query_for_the_shell(feed):
    line = shlex.split(block('upstream sql "CREATE'))[1:]
    shown = programs.run(UPSTREAM, *line, "--once", cwd=feed)
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert re.search(r"^\+ +15$", shown.stdout, re.MULTILINE), "the mean of the newest speeds, 30 and 0"
