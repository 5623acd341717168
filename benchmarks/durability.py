"""What `durability=power` costs a batch: the sink without Spark, both promises in turn on one disk.

``python -m benchmarks.durability``: for a quiet machine, and a folder on the disk that is meant (``--folder``); a disk
in memory syncs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.sink.spark_writer import stream_writer

COLUMNS = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.float64())])
SCHEMA = from_arrow_schema(COLUMNS.append(pa.field(SYSTEM, SYSTEM_TYPE)))
PROMISES = ("process", "power")


def batch_of(keys: int, rows: int, batch_id: int) -> pa.RecordBatch:
    """Return updates of random keys."""
    random = np.random.default_rng(batch_id)
    arrays = [
        pa.array(random.integers(0, keys, rows)),
        pa.array(np.full(rows, batch_id)),
        pa.array(random.random(rows)),
    ]
    seq = np.arange(rows) + batch_id * rows
    arrays.append(system_array(source="feed", seq=seq, arrival_us=np.full(rows, time.time_ns() // 1000)))
    return pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS.names, SYSTEM])


def write(folder: Path, durability: str, batch_id: int, rows: pa.RecordBatch, engine: str) -> tuple[float, float]:
    """Write one batch, and return its seconds by the clock and of the processor."""
    given = {"path": str(folder / "table"), "checkpointLocation": str(folder / "checkpoint"), "lease": "0 s"}
    given |= {"key": "k", "eventTime": "t", "buckets": "16", "durability": durability, "engine": engine}
    given |= {"indexLocation": str(folder / "index"), "maintenance": "off"}
    began, busy = time.perf_counter(), time.process_time()
    writer = stream_writer(given, SCHEMA, overwrite=False)
    writer.commit([writer.write(iter([rows]))], batch_id)
    return time.perf_counter() - began, time.process_time() - busy


def main() -> None:
    """Measure, and print a line for each size and engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="use this folder, on the disk to measure [default: the temporary one]"
    )
    parser.add_argument("--batches", type=int, default=30)
    asked = parser.parse_args()
    for engine in ("rewrite", "vectors"):
        for keys, rows in ((10_000, 1_000), (1_000_000, 10_000)):
            with tempfile.TemporaryDirectory(dir=asked.folder) as place:
                homes = {name: Path(place, name) for name in PROMISES}
                for home in homes.values():
                    (home / "checkpoint").mkdir(parents=True)
                    (home / "checkpoint" / "metadata").write_text(json.dumps({"id": home.name}))
                taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PROMISES}
                for batch_id in range(asked.batches):
                    batch = batch_of(keys, keys if batch_id == 0 else rows, batch_id)
                    # Each first in turn.
                    for name in PROMISES if batch_id % 2 else PROMISES[::-1]:
                        taken[name].append(write(homes[name], name, batch_id, batch, engine))
                os.sync()
            figures = [statistics.median(each[at] for each in taken[name][2:]) for name in PROMISES for at in (0, 1)]
            wall, busy, wall_power, busy_power = (f"{1e3 * figure:.1f}" for figure in figures)
            print(
                f"{engine}, {keys:,} keys, {rows:,} rows a batch: process {wall} ms ({busy} of the processor), power "
                f"{wall_power} ms ({busy_power})"
            )


if __name__ == "__main__":
    main()
