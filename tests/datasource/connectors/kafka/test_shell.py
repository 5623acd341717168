"""Topics by their address on the command line, as a person names them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kit.programs import run_command

from .messages import Sender

pytestmark = pytest.mark.spark


def test_latest_of_topics_by_their_address(
    broker: Any, topic: Callable[..., str], sender: Sender, tmp_path: Path
) -> None:
    names = [topic(2), topic()]
    for number in range(40):
        row = json.dumps({"k": number % 7, "at": f"2026-01-01T00:00:{number:02d}Z", "n": number}).encode()
        sender.send(names[number % 2], row, partition=0)
    address = f"kafka://{broker.address}/{','.join(names)}"
    asked = ["latest", "--from", address, "--key", "k", "--time", "at", "--to", "table", "--once"]
    done = run_command(*asked, "--master", "local[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "40 rows in" in done.stderr
    got = pl.read_delta(str(tmp_path / "table"))
    assert sorted(got.select("k", "n").rows()) == sorted((n % 7, n) for n in range(33, 40))
