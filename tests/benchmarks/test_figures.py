"""The figures of the papers in short: each comes out, and has its shape."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def figures(*arguments):
    command = [sys.executable, "-m", "benchmarks.figures", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_names_one_a_line():
    names = ["5", "7", "9", "12", "13", "13b", "14", "16", "17", "window-memory", "theory"]
    assert figures("--list").stdout.split() == [f"tr620-{name}" for name in names]


@pytest.mark.parametrize("name", ["5", "12", "13", "13b", "14", "16", "17", "window-memory", "theory"])
def test_shape_is_that_of_the_report(name, tmp_path):
    name = f"tr620-{name}"
    done = figures(name, "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shape: as in the report" in done.stdout
    for drawn in tmp_path.iterdir():
        assert drawn.stat().st_size < 100_000
        again = drawn.read_bytes()
        figures(name, "--quick", "--out", tmp_path)
        assert drawn.read_bytes() == again


def test_unknown_figure_is_refused_by_name():
    done = figures("tr620-6")
    assert done.returncode == 2
    assert "tr620-7" in done.stderr
