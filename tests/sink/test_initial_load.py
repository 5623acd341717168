"""An initial load does not need the memory for its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.places import ROOT
from kit.programs import run_python

# In a process of its own, as a task is: how much memory it has had at most is asked of the system.
TASK = """
import contextlib, resource, sys
from pathlib import Path

import numpy as np
import pyarrow as pa
sys.path.insert(0, sys.argv[1])
from kit.sink import Sink
from upstream.sink.merge import task

rows, buckets = int(sys.argv[3]), sys.argv[4]
columns = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.float64())])
sink = Sink(Path(sys.argv[2]), columns, {"key": "k", "time": "t", "buckets": buckets}, system=False)

def batches():
    rng = np.random.default_rng(1)
    for start in range(0, rows, 10_000):
        keys = (np.arange(start, start + 10_000) * 7919) % rows
        # Far apart, so that they are hashed however many they are.
        keys = keys * 1_000_003
        times = pa.array(keys + 1, pa.int64()).cast(columns.field("t").type)
        yield pa.RecordBatch.from_arrays([pa.array(keys), times, pa.array(rng.random(10_000))], schema=columns)

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
summary = sink.batch(0, batches())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert (summary.rows, summary.keys) == (rows, rows), summary
print((peak - before) >> 10)
"""


def megabytes_taken(folder: Path, rows: int, buckets: int) -> int:
    """By one task that loads so many rows, each with a key of its own."""
    done = run_python(TASK, ROOT / "tests", folder, str(rows), str(buckets))
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
def test_many_rows_take_the_memory_of_few(tmp_path: Path) -> None:
    small, large = megabytes_taken(tmp_path / "1", 2_500_000, 32), megabytes_taken(tmp_path / "2", 10_000_000, 128)
    # Four times the rows, in buckets of one size: what a task holds is the same but for what the system gives back
    # late.
    assert large < 1.5 * small
