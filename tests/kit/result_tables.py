"""Tables of several queries written by the sink's own classes, without Spark: what tasks and the driver do."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from upstream.core.rows.key import Key
from upstream.sink.figures.summary import CommitSummary
from upstream.sink.results import known_table as known_module
from upstream.sink.results import result_table as kept_module
from upstream.sink.results.result_table import ResultRows, ResultTable, stage
from upstream.sink.results.result_tables import ResultTables

from .tables import read_table

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
NOW_US = 1_700_000_000_000_000

Rows = Sequence[tuple[Any, ...]]


@dataclasses.dataclass
class Hosted:
    """Writes batches into the tables of several queries; the clock stands still unless a test moves it."""

    folder: Path
    host: str = "host"
    now_us: int = NOW_US
    threads: int = 1

    def __post_init__(self) -> None:
        self.tables = self.started()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def started(self) -> ResultTables:
        return ResultTables(self.host, str(self.checkpoint), lambda: self.now_us, threads=self.threads)

    def restart(self) -> None:
        """As another process would see the tables: without what this one knows of them."""
        known_module._known.clear()
        kept_module._kept = kept_module._RowCache()
        self.tables = self.started()

    def table(self, name: str, query_id: int = 1, **more: Any) -> ResultTable:
        place = str(self.folder / "results" / name)
        given: dict[str, Any] = {"location": place, "schema": COLUMNS, "key": Key(("k",)), **more}
        return ResultTable(query_id, name, **given)

    def staged(self, table: ResultTable, seen: Any, *tasks: Rows, deleted: Sequence[Any] = ()) -> list[bytes]:
        """What the tasks of a batch hand to the commit; the first one's also has deletions of keys."""
        found: list[bytes] = []
        for number, rows in enumerate(tasks):
            gone = [(key, *[None] * (len(table.schema) - 1)) for key in deleted] if number == 0 else []
            found.append(stage(table, seen, result_rows_of(table, [*rows, *gone], len(gone))))
        return found

    def results(
        self,
        tables: Sequence[ResultTable],
        rows: Mapping[str, Rows],
        deleted: Mapping[str, Sequence[Any]] | None = None,
    ) -> dict[str, list[bytes]]:
        seen = self.tables.look(tables)
        by_name = {table.name: table for table in tables}
        gone = deleted or {}
        for name in {**rows, **gone}:
            if name in seen.refused:
                raise seen.refused[name]
        return {
            name: self.staged(by_name[name], seen.tables[name], rows.get(name, ()), deleted=gone.get(name, ()))
            for name in {**rows, **gone}
        }

    def batch(
        self,
        batch_id: int,
        tables: Sequence[ResultTable],
        rows: Mapping[str, Rows] | None = None,
        deleted: Mapping[str, Sequence[Any]] | None = None,
        offsets: str | None = None,
    ) -> dict[str, CommitSummary]:
        results = self.results(tables, rows or {}, deleted)
        return self.tables.commit(tables, results, batch_id, offsets or f"offsets of {batch_id}")

    def commits(self, table: ResultTable) -> int:
        return DeltaTable(table.location).version() + 1

    def rows(self, table: ResultTable) -> list[tuple[Any, ...]]:
        found = read_table(table.location)
        return sorted(zip(*(found.column(name).to_pylist() for name in table.schema.names), strict=True))


def result_rows_of(table: ResultTable, rows: Rows, deleted: int = 0) -> ResultRows:
    """Rows as the stages send them; the last ones are tombstones."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, table.schema, strict=True)]
    marks = np.arange(len(rows)) >= len(rows) - deleted
    arrival = np.full(len(rows), NOW_US - 2_000_000)
    came = pa.Table.from_arrays(arrays, names=table.schema.names)
    return ResultRows(came, np.zeros(len(rows), dtype=np.int64), arrival, arrival, marks)
