"""``upstream maintain``, in this process."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner
from written import Sink

from upstream.cli.failures import Failure
from upstream.cli.main import app


def asked(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["maintain", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_table_is_maintained_by_hand(tmp_path: Path) -> None:
    options = {"key": "k", "time": "t", "buckets": "2", "maintenance": "off"}
    sink = Sink(tmp_path, options=options)
    for number in range(12):
        sink.batch(number, [sink.rows([(key, number, "x") for key in range(4)], seq=number * 10)])
        if number == 8:
            DeltaTable(str(sink.path)).create_checkpoint()
    rows, files = sink.latest(), sink.files()
    log = set(os.listdir(sink.path / "_delta_log"))
    assert "0 versions would be removed" in asked(sink.path, "--dry-run"), "the table records seven days"
    told = asked(sink.path, "--versions", "2", "--dry-run")
    assert "9 versions would be removed from the log, with" in told
    assert "versions 11 to 12 can be read" in told
    assert (sink.files(), set(os.listdir(sink.path / "_delta_log"))) == (files, log)
    assert "9 versions removed from the log" in asked(sink.path, "--versions", "2")
    assert sink.files() < files
    assert sink.latest() == rows
    assert "0 versions would be removed" in asked(sink.path, "--dry-run", "--versions", "1000")


def test_other_tables_are_left_to_their_owners(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "theirs"), pa.table({"a": [1]}))
    with pytest.raises(Failure, match="was not made by this package"):
        asked(tmp_path / "theirs")
    with pytest.raises(Failure, match="There is no table"):
        asked(tmp_path / "none")
