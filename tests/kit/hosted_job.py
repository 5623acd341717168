"""The feed of the jobs that host continuous queries in tests, and what their tables must hold."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

import upstream as us
from upstream.queries.registry.registry import registry_now


class Row(NamedTuple):
    """A row of the feed: key, second, group, value."""

    k: int
    second: int
    g: int
    v: int


def write_hosted_feed(folder: Path, files: int) -> list[Row]:
    """Write files of rows that are out of order by less than the delay, and one that moves the watermark past all."""
    folder.mkdir()
    chance = random.Random(files)
    rows = [Row(chance.randrange(9), second, chance.randrange(3), second) for second in range(files * 20)]
    came = sorted(rows, key=lambda row: row.second + chance.uniform(0, 4))
    ends = [Row(100, files * 20 + second, 100, 0) for second in (1000, 1001, 1002, 1003)]
    for number in range(files + 1):
        part = came[number * 20 : (number + 1) * 20] if number < files else ends
        lines = [f"{row.k},{_moment(row.second)},{row.g},{row.v}" for row in part]
        file = folder / f"{number:03d}.csv"
        file.write_text("\n".join(["k,t,g,v", *lines]) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    return [*rows, *ends]


def check_hosted(lake: Path, checkpoint: Path, rows: Sequence[Row]) -> None:
    """Compare each table with what it must hold, and look whether each batch was committed to it once."""
    newest = {row.k: row for row in sorted(rows, key=lambda row: row.second)}
    groups: dict[int, list[int]] = {}
    for row in newest.values():
        groups.setdefault(row.g, []).append(row.v)
    assert _rows(lake / "newest", "k", "g", "v") == sorted((row.k, row.g, row.v) for row in newest.values())
    assert _rows(lake / "per_group", "g", "n", "most") == sorted((g, len(v), max(v)) for g, v in groups.items())
    assert _rows(lake / "later", "g", "total") == sorted((g, sum(v)) for g, v in groups.items())
    # The last rows of all wait for a watermark that passes them.
    each = [row for row in _rows(lake / "each", "k", "v") if row[0] != 100]
    assert each == sorted((row.k, row.v) for row in rows if row.k != 100)
    registry = registry_now(str(checkpoint))
    assert set(registry.active) == {"each", "newest", "per_group", "later"}
    assert "division by zero" in (registry.queries["failing"].reason or "").lower()
    for name in registry.active:
        table = us.LatestTable(lake / name)
        batches = [summary.batch_id for _, summary in table.history()]
        assert batches == sorted(set(batches)), name
        assert table.check().healthy, name


def _rows(table: Path, *columns: str) -> list[tuple[int, ...]]:
    return sorted(pl.read_delta(str(table)).select(columns).rows())


def _moment(second: int) -> str:
    return f"2026-01-01 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
