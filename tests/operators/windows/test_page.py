"""docs/windows.md and docstrings: examples run, pictures are drawn."""

import doctest
import re
import subprocess
import sys

from kit.places import ROOT

PAGE = ROOT / "docs" / "windows.md"


def test_examples_of_the_page_run():
    done = doctest.testfile(str(PAGE), module_relative=False)
    assert done.attempted > 10
    assert done.failed == 0


def test_pictures_come_out_the_same_each_time(tmp_path):
    shown = set(re.findall(r"figures/(windows-[\w-]+\.svg)", PAGE.read_text(encoding="utf-8")))
    drawn = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        command = [sys.executable, "-m", "benchmarks.window_pictures", "--out", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        drawn.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == shown
    assert all((ROOT / "docs" / "figures" / name).is_file() for name in shown)
