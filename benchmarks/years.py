"""Whether a table stays as it is for as long as commits are made: its log, its folders, what a commit, a start and a
read take, memory.

``python -m benchmarks.years``: one commit after the other by the sink's own writer, without Spark, so that a week of
one commit a second goes by in hours; the retention is shortened in the same measure. What a table holds follows from
the versions that are kept, and not from how many there have been: that is what the lines show. With ``--retention "7
days"`` nothing is removed, and they show what it would be like.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.sink.figures.summary import read_summaries
from upstream.sink.spark_writer import stream_writer

from .environments import CACHE
from .harness import arguments, machine

__all__ = ["Line", "live"]

COLUMNS = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.float64())])
KEYS, ROWS, BUCKETS = 2_000, 10, 4
_NOW_US = 1_700_000_000_000_000


@dataclasses.dataclass(frozen=True)
class Line:
    """A table after so many commits.

    Attributes
    ----------
    commits : int
    log : int
        Files in the log's folder.
    files : int
        Files of data.
    batch_ms, batch_p99_ms : float
        What a batch took since the line before, maintenance included.
    load_ms : float
        What opening the table takes who has not met it.
    read_ms : float
        What reading it takes.
    checkpoint_kb : float
        The log's last checkpoint.
    memory_mb : float
        What this process holds.
    maintenance_ms : float
        What maintenance took of each commit, on average.
    """

    commits: int
    log: int
    files: int
    batch_ms: float
    batch_p99_ms: float
    load_ms: float
    read_ms: float
    checkpoint_kb: float
    memory_mb: float
    maintenance_ms: float


def live(home: Path, commits: int, every: int, seconds: float = float("inf"), **options: str) -> Iterator[Line]:
    """Commit after commit; a line after each `every` of them.

    Parameters
    ----------
    home
        A folder for the table and its checkpoint.
    commits, seconds
        How many, and the most time that they may take.
    every
        Commits from line to line.
    **options
        Of the sink.
    """
    checkpoint, path = home / "checkpoint", home / "table"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "years"}))
    given = {
        "path": str(path),
        "checkpointLocation": str(checkpoint),
        "key": "k",
        "eventTime": "t",
        "buckets": str(BUCKETS),
    }
    schema = from_arrow_schema(COLUMNS.append(pa.field(SYSTEM, SYSTEM_TYPE)))
    chance = np.random.default_rng(7)
    took: list[float] = []
    begun = time.perf_counter()
    for number in range(commits):
        rows = _rows(number, chance.integers(0, KEYS, ROWS))
        before = time.perf_counter()
        # As Spark does it: a writer for the tasks, and another one for the commit.
        result = stream_writer({**given, **options}, schema, overwrite=False).write(iter([rows]))
        stream_writer({**given, **options}, schema, overwrite=False).commit([result], number)
        took.append(time.perf_counter() - before)
        over = time.perf_counter() - begun > seconds
        if (number + 1) % every == 0 or over:
            yield _line(path, number + 1, took)
            took.clear()
        if over:
            return


def main() -> None:
    """Run and print."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--retention", default="1 minute")
    parser.add_argument("--versions", default="10000")
    given = parser.parse_args()
    commits = 2_000 if given.quick else given.commits
    home = CACHE / "years"
    shutil.rmtree(home, ignore_errors=True)
    print(json.dumps(machine()))
    names = [field.name for field in dataclasses.fields(Line)]
    print("  ".join(f"{name:>14}" for name in names))
    lines: list[Line] = []
    options = {"retention": given.retention, "retentionVersions": given.versions}
    for line in live(home, commits, max(commits // 100, 100), given.minutes * 60, **options):
        lines.append(line)
        print("  ".join(f"{getattr(line, name):>14,.6g}" for name in names), flush=True)
    if given.json:
        rows = [dataclasses.asdict(line) for line in lines]
        given.json.write_text(json.dumps({"machine": machine(), "options": options, "rows": rows}, indent=1))


def _rows(number: int, keys: np.ndarray) -> pa.RecordBatch:
    count = len(keys)
    columns = [pa.array(keys), pa.array(np.full(count, number)), pa.array(keys * 0.5)]
    system = system_array(
        source="feed", seq=np.arange(number * count, (number + 1) * count), arrival_us=np.full(count, _NOW_US)
    )
    return pa.RecordBatch.from_arrays([*columns, system], names=[*COLUMNS.names, SYSTEM])


def _line(path: Path, commits: int, took: list[float]) -> Line:
    before = time.perf_counter()
    table = DeltaTable(str(path))
    loaded = time.perf_counter()
    held = table.to_pyarrow_table(columns=["k"]).column("k").to_numpy()
    read = time.perf_counter()
    assert len(np.unique(held)) == len(held), "a key twice"
    log = os.listdir(path / "_delta_log")
    last = max((name for name in log if name.endswith(".checkpoint.parquet")), default="")
    since = [summary for _, summary in read_summaries(str(path), table.version() - len(took))]
    upkeep = [each.maintained.seconds for each in since if each.maintained is not None]
    return Line(
        commits,
        len(log),
        sum(len(files) for _, _, files in os.walk(path)) - len(log),
        statistics.median(took) * 1e3,
        float(np.quantile(took, 0.99)) * 1e3,
        (loaded - before) * 1e3,
        (read - loaded) * 1e3,
        (path / "_delta_log" / last).stat().st_size / 1e3 if last else 0.0,
        int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1e3,
        sum(upkeep) / len(took) * 1e3,
    )


if __name__ == "__main__":
    main()
