"""The tutorial works as it is printed: its programs are saved, its lines of shell run, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from kit.places import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_BLOCK = re.compile(r"```(python|shell)\n(.*?)```", re.DOTALL)
_SAVED = re.compile(r"[Ss]ave this\s+as `([\w.]+)`")


def test_as_it_is_printed(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    outputs = dict[str, str]()
    before = 0
    for found in _BLOCK.finditer(page):
        if found[1] == "python":
            name = _SAVED.findall(page[before : found.start()])
            assert len(name) == 1, f"what is this block saved as? {found[2][:80]}"
            (tmp_path / name[0]).write_text(found[2], encoding="utf-8")
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", found[2]],
                check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, f"{found[2]}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
            outputs[found[2]] = outputs.get(found[2], "") + done.stdout
        before = found.end()

    # What the text says of the results.
    assert "[(5, " in outputs["python read.py\n"]
    assert "['bus-1', 'bus-2', 'bus-3', 'bus-4']" in outputs["python moving.py\n"]
    assert "2024-01-01 00:30:00" in outputs["python speeds.py\n"]
    assert "2024-01-01 00:50:00" in outputs["python make_feed.py 2\npython speeds.py\n"]
    assert outputs["upstream history ./latest\n"].count(" 595 ") == 2
    latest = pl.read_delta(str(tmp_path / "latest"))
    assert latest.height == 5
    assert str(latest["timestamp"].min()).startswith("2024-01-01 01:19:50")
    speeds = pl.read_delta(str(tmp_path / "speeds"))
    assert speeds["positions"].to_list() == [60] * 5
    assert {str(end)[:19] for end in speeds["window_end"]} == {"2024-01-01 00:50:00"}
