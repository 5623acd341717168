"""README's lines run as they stand there, within a time limit."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
LIMIT_S = 240
MOVING = {"a": 30.0, "b": 20.0}

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]


def block(holds: str) -> str:
    """The fenced lines that hold a text."""
    found = [
        each for each in re.findall(r"```\w*\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL) if holds in each
    ]
    assert len(found) == 1, holds
    return found[0]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
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
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("wb"), start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def speeds(process: subprocess.Popen[bytes], folder: Path) -> dict[str, float]:
    """The table's rows, as soon as it has any."""
    table = folder / "latest"
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        assert process.poll() is None, (folder / "stderr").read_text()[-3000:]
        if any((table / "_delta_log").glob("*.json")):
            rows = pl.read_delta(str(table))
            if rows.height:
                return {str(key): float(speed) for key, speed in rows.select("vehicle_id", "speed").iter_rows()}
        time.sleep(0.2)
    raise AssertionError(f"no row in {LIMIT_S} s: {(folder / 'stderr').read_text()[-3000:]}")


def test_the_lines_of_python(feed: Path) -> None:
    (feed / "job.py").write_text(block("us.session()"))
    with running([sys.executable, "job.py"], feed) as process:
        assert speeds(process, feed) == MOVING


def test_the_lines_for_the_shell(feed: Path) -> None:
    latest, show = (shlex.split(line)[1:] for line in block("upstream latest --from").splitlines())
    upstream = [str(Path(sys.executable).with_name("upstream"))]
    with running([*upstream, *latest], feed) as process:
        assert speeds(process, feed) == {"a": 30.0, "b": 0.0}
    shown = subprocess.run(
        [*upstream, *show], cwd=feed, capture_output=True, text=True, check=True, timeout=LIMIT_S
    ).stdout
    assert "30" in shown
    assert "2024-01-01 00:00:04" not in shown, "it has stopped, so the filter leaves it out"


def test_the_continuous_query_for_the_shell(feed: Path) -> None:
    line = shlex.split(block("upstream sql --stream").replace("\\\n", " "))[1:]
    upstream = str(Path(sys.executable).with_name("upstream"))
    shown = subprocess.run(
        [upstream, *line, "--once"], cwd=feed, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert re.search(r"^\+ +15$", shown.stdout, re.MULTILINE), "the mean of the newest speeds, 30 and 0"
