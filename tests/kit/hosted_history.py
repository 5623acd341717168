"""What the table of a continuous query held at each of its versions, as delta-rs reads it, by incarnation and batch."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

__all__ = ["Incarnation", "Version", "history_of"]

_OURS = ("row_key", "copy", "time")


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a table: its number, the batch that made it, and the rows with how often each is there."""

    number: int
    batch: int
    contents: Counter[tuple[Any, ...]]


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


def _contents(table: Path, version: int) -> Counter[tuple[Any, ...]]:
    rows = DeltaTable(str(table), version=version).to_pyarrow_table()
    shown = [each for each in rows.column_names if not each.startswith("_upstream") and each not in _OURS]
    return Counter(tuple(row.values()) for row in rows.select(shown).to_pylist())
