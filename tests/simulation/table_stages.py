"""A join with a Delta table that somebody changes: its version is journaled with the offsets of each batch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from upstream.operators.tables.build import TableLookup
from upstream.operators.tables.plan import planned
from upstream.operators.tables.versions import VersionReader

from .stages import Batches, MismatchError, States

COLUMNS = pa.schema([("k", pa.int64()), ("name", pa.string())])
Names = dict[str, str]
"""The rows of the table: keys, as JSON has them, and names."""


def table_at(checkpoint: Path) -> str:
    """Where the table of a query is, whatever becomes of its checkpoint."""
    return str(checkpoint.parent / "names")


def change_table(checkpoint: Path, names: Names) -> None:
    """Write another version of the table."""
    rows = pa.table({"k": [int(key) for key in names], "name": [*names.values()]}, schema=COLUMNS)
    write_deltalake(table_at(checkpoint), rows, mode="overwrite")


class TableStage:
    """The join; `number` counts the operators."""

    waits = False

    def __init__(self, number: int, how: Any, rows: pa.Schema, checkpoint: Path) -> None:
        self._number = number
        place = table_at(checkpoint)
        plan = planned(rows, COLUMNS, place, {"k": "k"}, how, None, "_right", {})
        self._lookup = TableLookup(plan, str(checkpoint))
        self._versions = VersionReader(place, {})

    def offset(self) -> dict[str, Any]:
        """What Spark journals of the table for the next batch."""
        return self._versions.latestOffset({}, self._versions.getDefaultReadLimit())

    def run(
        self, tasks: list[Batches], states: States, record: Any, batch: int, chance: random.Random, twins: float
    ) -> list[Batches]:
        """A batch of it, task by task."""
        del states
        given = [[*self._lookup(iter(task))] for task in tasks]
        if chance.random() < twins and given != [[*self._lookup(iter(task))] for task in tasks]:
            raise MismatchError("a join with a table gives something else when a task is run again")
        record.by_shard[self._number, batch] = [(0, pa.Table.from_batches(each)) for each in given if each]
        return given
