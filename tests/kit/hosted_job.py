"""The feed of the jobs that host continuous queries in tests, and what their tables must hold, at each version: what
DuckDB answers over the rows that the batches up to it have read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
from deltalake import DeltaTable

import upstream as us
from upstream.hosting.registry import registry_now

_NEWEST = "(SELECT k, t, g, v FROM came QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) = 1)"
_OURS = ("row_key", "copy", "time")
Contents = Counter[tuple[Any, ...]]
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
            begun_in_sight_of_all = listed[name]["complete_from"] is not None
            fits = check_incarnation(last, answers, on_end=True)
            assert not begun_in_sight_of_all or 0 in fits, f"{name} is said to lack nothing, and lacks rows"
    # The last rows of a stream of changes wait for a watermark that passes them.
    each = pl.read_delta(str(lake / "each")).filter(pl.col("k") != _ENDS).select("k", "v").rows()
    assert sorted(each) == sorted((row.k, row.v) for row in rows if row.k != _ENDS)
    newest = {row.k: row for row in sorted(rows, key=lambda row: row.second)}
    found = pl.read_delta(str(lake / "newest")).select("k", "g", "v").rows()
    assert sorted(found) == sorted((row.k, row.g, row.v) for row in newest.values())


def check_incarnation(each: Incarnation, answers: Answers, *, on_end: bool = False) -> set[int]:
    """Compare what a table held, and return from which batches on its query may have seen rows."""
    # What runs from the beginning has seen all. What comes later has what others have kept for it.
    fits = set(range(each.versions[0].batch + 1)) if each.number > answers.at_once else {0}
    versions = each.versions
    for version in versions:
        batch = answers.batches.last if on_end and version is versions[-1] else version.batch
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


class Batches:
    """What the offsets that Spark has journaled say of each batch."""

    def __init__(self, checkpoint: Path) -> None:
        self._offsets: list[list[dict[str, Any]]] = []
        files = sorted((int(file.name), file) for file in (checkpoint / "offsets").glob("[0-9]*"))
        assert [number for number, _ in files] == list(range(len(files)))
        for _, file in files:
            self._offsets.append([json.loads(line) for line in file.read_text().splitlines()[1:] if line != "-"])

    @property
    def last(self) -> int:
        return len(self._offsets) - 1

    def command(self, batch: int) -> dict[str, Any]:
        """The version of the registry, and whose results are put out."""
        return next(each for each in self._offsets[batch] if "upstream_queries" in each)

    def files(self, batch: int) -> set[str]:
        """The files that this batch and those before it have read."""
        position = self._source(batch)["position"]
        assert "quiet" not in position, "with more than 32 files, lists beside the offsets have the others"
        return {path for path, read, *_ in position["files"] if read}

    def bound_us(self, batch: int) -> int | None:
        """The low-watermark that this batch brings."""
        bounds = [each["bound"] for each in self._source(batch)["progress"].values()]
        assert len(bounds) <= 1
        return bounds[0] if bounds else None

    def _source(self, batch: int) -> dict[str, Any]:
        nothing: dict[str, Any] = {"position": {"files": []}, "progress": {}}
        return next((each for each in self._offsets[batch] if "connector" in each), nothing)


class Changes:
    """The journal of the registry, as it is on the disk."""

    def __init__(self, checkpoint: Path) -> None:
        files = sorted((checkpoint / "queries" / "changes").glob("*.json"))
        self._changes = [json.loads(file.read_text()) for file in files]

    def text(self, name: str, number: int) -> str:
        """The text of an incarnation of a query."""
        texts = [each["text"] for each in self._changes[:number] if each["name"] == name and "text" in each]
        return texts[-1]

    def relation(self, version: int) -> tuple[str, int]:
        """The table of the stored relation at a version of the registry, and its version."""
        stored = [each["stream"]["table"] for each in self._changes[:version] if each["kind"] == "table"]
        return stored[-1]["location"], stored[-1]["version"]


class Answers:
    def __init__(self, batches: Batches, changes: Changes) -> None:
        self.batches = batches
        self.at_once = int(batches.command(0)["version"])
        """The incarnations that the first batch has."""
        self._changes = changes
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1; SET TimeZone = 'UTC'")

    @functools.cache  # noqa: B019 it goes with the test
    def at(self, name: str, number: int, batch: int, since: int) -> Contents:
        """The rows of a query's table after a batch, if it has seen the rows of a batch and of later ones."""
        files = self.batches.files(batch) - (self.batches.files(since - 1) if since else set())
        bound = self.batches.bound_us(batch)
        text = self._changes.text(name, number)
        if not files or bound is None:
            return Counter()
        location, version = self._changes.relation(int(self.batches.command(batch)["version"]))
        self._database.register("names", DeltaTable(location, version=version).to_pyarrow_table())
        # What is newest changes as rows come; changes of a window leave when the low-watermark passes them.
        of_time = "" if "LATEST" in text else f" WHERE epoch_us(t) < {bound}"
        self._database.execute(
            "CREATE OR REPLACE TABLE came AS SELECT * FROM read_csv($files, columns = "
            f"{{'k': 'BIGINT', 't': 'TIMESTAMP', 'g': 'BIGINT', 'v': 'BIGINT'}}){of_time}",
            {"files": sorted(files)},
        )
        sql = re.sub(r"ISTREAM\((.*) rows \[NOW\]\)", r"\1 came", text.replace("LATEST(rows)", _NEWEST))
        return Counter(self._database.execute(sql).fetchall())


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a table: its number, the batch that made it, and the rows with how often each is there."""

    number: int
    batch: int
    contents: Contents


@dataclasses.dataclass
class Incarnation:
    """The versions that one incarnation of a query has made."""

    name: str
    number: int
    versions: list[Version]


def history_of(table: Path, name: str) -> list[Incarnation]:
    """Return the incarnations of a query whose table this has been, in order; none that a later one came back after."""
    found: list[Incarnation] = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        txns = {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each}
        batch = [n for app, n in txns.items() if app.startswith("upstream-") and app.endswith(f"/{name}")]
        number = [n for app, n in txns.items() if app.startswith("upstream.incarnation-") and app.endswith(f"/{name}")]
        assert len(batch) == len(number) == 1, f"{entry} has no batch of {name}, or several"
        if not found or found[-1].number != number[0]:
            assert all(each.number < number[0] for each in found), f"incarnation {number[0]} of {name} has come back"
            found.append(Incarnation(name, number[0], []))
        version = int(entry.stem)
        found[-1].versions.append(Version(version, batch[0], _contents(table, version)))
    return found


def _contents(table: Path, version: int) -> Contents:
    rows = DeltaTable(str(table), version=version).to_pyarrow_table()
    shown = [each for each in rows.column_names if not each.startswith("_upstream") and each not in _OURS]
    return Counter(tuple(row.values()) for row in rows.select(shown).to_pylist())
