"""What continuous queries must answer after a batch, by DuckDB over the rows that the batches up to it have read."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

__all__ = ["Answers", "Batches", "Changes"]

_NEWEST = "(SELECT k, t, g, v FROM came QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) = 1)"


class Batches:
    """What the offsets that Spark has journaled say of each batch.

    Parameters
    ----------
    checkpoint
        Of the job.
    """

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
        return {path for path, read, *_ in self._source(batch)["position"]["files"] if read}

    def bound_us(self, batch: int) -> int | None:
        """The low-watermark that this batch brings."""
        bounds = [each["bound"] for each in self._source(batch)["progress"].values()]
        assert len(bounds) <= 1
        return bounds[0] if bounds else None

    def _source(self, batch: int) -> dict[str, Any]:
        nothing: dict[str, Any] = {"position": {"files": []}, "progress": {}}
        return next((each for each in self._offsets[batch] if "connector" in each), nothing)


class Changes:
    """The journal of the registry, as it is on the disk.

    Parameters
    ----------
    checkpoint
        Of the job.
    """

    def __init__(self, checkpoint: Path) -> None:
        files = sorted((checkpoint / "queries" / "changes").glob("*.json"))
        self._changes = [json.loads(file.read_text()) for file in files]

    def text(self, name: str, number: int) -> str:
        """The text of an incarnation of a query."""
        texts = [each["text"] for each in self._changes[:number] if each["name"] == name and "text" in each]
        return texts[-1]

    def relation(self, version: int) -> tuple[str, int]:
        """The table of the stored relation at a version of the registry, and its version."""
        stored = [each["stream"]["table"] for each in self._changes[:version] if each["kind"] == "relation"]
        return stored[-1]["location"], stored[-1]["version"]


class Answers:
    """The answers.

    Parameters
    ----------
    batches, changes
        Of the job.
    """

    def __init__(self, batches: Batches, changes: Changes) -> None:
        self.batches = batches
        self.at_once = int(batches.command(0)["version"])
        """The incarnations that the first batch has."""
        self._changes = changes
        self._database = duckdb.connect()
        self._database.execute("SET threads = 1; SET TimeZone = 'UTC'")

    @functools.cache  # noqa: B019 it goes with the test
    def at(self, name: str, number: int, batch: int, since: int) -> Counter[tuple[Any, ...]]:
        """The rows of a query's table after a batch, if it has seen the rows of a batch and of later ones.

        Parameters
        ----------
        name, number
            The query and its incarnation.
        batch, since
            The two batches.
        """
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
