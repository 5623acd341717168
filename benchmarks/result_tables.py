"""What a batch costs that commits to many small tables: by part, and beside the sink's own commits, one by one.

``python -m benchmarks.result_tables`` runs without Spark, in one process: what tasks do is added up here, and divided
among the cores in a job. ``--quick`` takes fewer tables.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.sink.results.result_table import ResultRows, ResultTable, stage
from upstream.sink.results.result_tables import ResultTables
from upstream.sink.write_batch import batch_writer

COLUMNS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("share", pa.float64())])
SCHEMA = from_arrow_schema(COLUMNS.append(pa.field(SYSTEM, SYSTEM_TYPE)))
PARTS = ("look", "stage", "commit")


def rows_of(rows: int, batch_id: int) -> ResultRows:
    """Return the changes of a small result: an update of each key, and a deletion."""
    arrays = [pa.array(np.arange(rows)), pa.array(np.full(rows, batch_id)), pa.array(np.arange(rows) / rows)]
    arrival = np.full(rows, time.time_ns() // 1000)
    numbers, deleted = np.full(rows, batch_id), np.arange(rows) == batch_id % rows
    return ResultRows(pa.Table.from_arrays(arrays, schema=COLUMNS), numbers, arrival, arrival, deleted)


def batch_of(came: ResultRows) -> pa.RecordBatch:
    """Return the changes as Spark gives them to the sink's writer of one table."""
    system = system_array(source="", seq=came.seq, arrival_us=came.arrival_us, deleted=came.deleted)
    (batch,) = came.rows.append_column(SYSTEM, system).to_batches()
    return batch


def seconds(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what the work gives, and its seconds by the clock and of the processor."""
    began, busy = time.perf_counter(), time.process_time()
    done = work()
    return done, time.perf_counter() - began, time.process_time() - busy


def many(folder: Path, count: int, rows: int, batches: int) -> list[str]:
    """Commit batches to so many tables at once, and return a line for each part."""
    host = ResultTables("host", str(folder / "checkpoint"))
    tables = [ResultTable(1, f"q{each}", str(folder / f"q{each}"), COLUMNS, Key(("k",))) for each in range(count)]
    taken: dict[str, list[tuple[float, float]]] = {part: [] for part in PARTS}
    for batch_id in range(batches):
        changes = rows_of(rows, batch_id)
        seen, *looked = seconds(lambda: host.look(tables).tables)
        staged, *merged = seconds(
            lambda: {table.name: [stage(table, seen[table.name], changes)] for table in tables}  # noqa: B023
        )
        _, *committed = seconds(lambda: host.commit(tables, staged, batch_id, None))  # noqa: B023
        if batch_id:  # the first makes the tables
            for part, (wall, busy) in zip(PARTS, (looked, merged, committed), strict=True):
                taken[part].append((wall, busy))
    return [f"{part:>24}  {_middle(taken[part])}" for part in PARTS]


def one_by_one(folder: Path, count: int, rows: int, batches: int) -> str:
    """Commit the same by the sink's own writer of one table, and return a line."""
    taken: list[tuple[float, float]] = []
    for batch_id in range(batches):
        changes = batch_of(rows_of(rows, batch_id))
        spent = [seconds(lambda each=each: _write(folder / f"s{each}", batch_id, changes))[1:] for each in range(count)]  # noqa: B023
        if batch_id:
            taken.append((sum(wall for wall, _ in spent), sum(busy for _, busy in spent)))
    return f"{'the sink, one by one':>24}  {_middle(taken)}"


def _write(path: Path, batch_id: int, changes: pa.RecordBatch) -> None:
    given = {"path": str(path), "key": "k", "buckets": "1", "txnAppId": "host", "txnVersion": str(batch_id)}
    writer = batch_writer(given, SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([changes]))])


def _middle(taken: list[tuple[float, float]]) -> str:
    wall, busy = (statistics.median(each) for each in zip(*taken, strict=True))
    return f"{wall:7.3f} s by the clock, {busy:7.3f} s of the processor"


def main() -> None:
    """Measure, and print the parts of a batch for each number of tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="use this folder, on the disk to measure [default: the temporary one]"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=20, help="change this many rows of each table")
    asked = parser.parse_args()
    batches = 4 if asked.quick else 8
    for count in (10, 30) if asked.quick else (100, 1_000):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            print(f"{count} tables, {asked.rows} rows each:")
            print("\n".join(many(Path(folder), count, asked.rows, batches)))
            if count <= 100:
                print(one_by_one(Path(folder), count, asked.rows, batches))


if __name__ == "__main__":
    main()
