"""Recorded data, whole: every row arrives, whatever its format and compression."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest
from kit.places import RECORDED, needs_recorded

from upstream.datasource.connectors.contract import Limit

pytestmark = needs_recorded


@pytest.mark.parametrize("name", ["ais.csv.gz", "buses-2016-11-24.csv.gz", "buses-2016-11-25.csv.gz"])
def test_csv(name: str, folder: Path, follow: Any) -> None:
    with gzip.open(RECORDED / name, "rt", newline="") as file:
        wanted = list(csv.DictReader(file))
    feed = follow(path=str(RECORDED / name))
    rows = feed.step()
    assert feed.malformed == []
    assert len(rows) == len(wanted)
    key = next(iter(wanted[0]))
    assert [str(row[key]) for row in rows] == [row[key] for row in wanted]
    (folder / name[:-3]).write_bytes(gzip.decompress((RECORDED / name).read_bytes()))
    plain = follow(splitBytes="1 MB")
    assert plain.connector.schema() == feed.connector.schema()
    assert plain.drain(Limit(rows=30_000)) == rows
