"""The feed of the jobs that host continuous queries in tests, and what their tables must hold, at each version."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

import upstream as us
from upstream.queries.registry.registry import registry_now

from .hosted_answers import Answers, Batches, Changes
from .hosted_history import Incarnation, history_of

_ENDS = 100
"""The key of the last rows: they let a query fail."""


class Row(NamedTuple):
    """A row of the feed: key, second, group, value."""

    k: int
    second: int
    g: int
    v: int


def write_hosted_feed(folder: Path, files: int) -> list[Row]:
    """Write files of rows that are out of order by less than the delay, and one that moves the watermark past all;
    beside them the stored relation that queries read.
    """
    folder.mkdir()
    chance = random.Random(files)
    rows = [Row(chance.randrange(9), second, chance.randrange(3), second + 1) for second in range(files * 20)]
    came = sorted(rows, key=lambda row: row.second + chance.uniform(0, 4))
    ends = [Row(_ENDS, files * 20 + second, 100, 0) for second in (1000, 1001, 1002, 1003)]
    for number in range(files + 1):
        part = came[number * 20 : (number + 1) * 20] if number < files else ends
        lines = [f"{row.k},{_moment(row.second)},{row.g},{row.v}" for row in part]
        file = folder / f"{number:03d}.csv"
        file.write_text("\n".join(["k,t,g,v", *lines]) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    pl.DataFrame({"g": [0, 1, 2], "name": ["zero", "one", "two"]}).write_delta(str(folder.parent / "names"))
    return [*rows, *ends]


def check_hosted(lake: Path, checkpoint: Path, rows: Sequence[Row]) -> None:
    """Compare each version of each table with what DuckDB answers over the rows that its batch had, and the last one
    with what it answers over all rows; and look whether each batch was committed once.
    """
    answers = Answers(Batches(checkpoint), Changes(checkpoint))
    assert not (lake / "gone").exists(), "the table of a query that was dropped with it"
    listed = {row["name"]: row for row in us.queries(checkpoint=checkpoint).list().iter_rows(named=True)}
    registry = registry_now(str(checkpoint))
    assert set(registry.active) == {"each", "newest", "per_group", "later", "another", "named"}
    assert set(listed) == {*registry.active, "failing", "stopped"}
    assert "division by zero" in (registry.queries["failing"].reason or "").lower()
    for name in listed:
        history = history_of(lake / name, name)
        assert us.LatestTable(lake / name).check().healthy, name
        batches = [version.batch for each in history for version in each.versions]
        assert batches == sorted(set(batches)), f"the table of {name} has batches twice, or out of order: {batches}"
        for each in history:
            check_incarnation(each, answers)
        last = history[-1]
        assert last.number == registry.queries[name].id, f"the table of {name} is of {last.number}"
        if registry.queries[name].active:
            begun_in_sight_of_all = listed[name]["whole_from"] is not None
            fits = check_incarnation(last, answers, at_end=True)
            assert not begun_in_sight_of_all or 0 in fits, f"{name} is said to lack nothing, and lacks rows"
    # The last rows of a stream of changes wait for a watermark that passes them.
    each = pl.read_delta(str(lake / "each")).filter(pl.col("k") != _ENDS).select("k", "v").rows()
    assert sorted(each) == sorted((row.k, row.v) for row in rows if row.k != _ENDS)
    newest = {row.k: row for row in sorted(rows, key=lambda row: row.second)}
    found = pl.read_delta(str(lake / "newest")).select("k", "g", "v").rows()
    assert sorted(found) == sorted((row.k, row.g, row.v) for row in newest.values())


def check_incarnation(each: Incarnation, answers: Answers, *, at_end: bool = False) -> set[int]:
    """Compare what a table held, and return from which batches on its query may have seen rows."""
    # What runs from the beginning has seen all. What comes later has what others have kept for it.
    fits = set(range(each.versions[0].batch + 1)) if each.number > answers.at_once else {0}
    versions = each.versions
    for version in versions:
        batch = answers.batches.last if at_end and version is versions[-1] else version.batch
        found = version.contents
        expected = {since: answers.at(each.name, each.number, batch, since) for since in fits}
        fits = {since for since, rows in expected.items() if rows == found}
        assert fits, (
            f"version {version.number} of {each.name} (incarnation {each.number}), of batch {batch}, has\n"
            f"{sorted(found.items())}\nand not\n{sorted(next(iter(expected.values())).items())}"
        )
    return fits


def _moment(second: int) -> str:
    return f"2026-01-01 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
