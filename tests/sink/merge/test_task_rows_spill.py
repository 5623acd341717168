"""Rows beyond the bound of a task's memory: put aside in runs, merged bucket by bucket."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.places import ROOT
from kit.programs import run_python

from upstream.conf.errors import EnvironmentMissingError
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.sink.merge import task_rows
from upstream.sink.merge import task_rows as spilling
from upstream.sink.merge.batch_rows import BatchRows
from upstream.sink.merge.newest_rows import newest_rows
from upstream.sink.merge.task_rows import RowBuffer
from upstream.sink.spec.layout import Layout

COLUMNS = [("k", '"string"'), ("t", '"long"'), ("v", '"string"')]
TIMED, UNTIMED = (Layout(("k",), time, 3, tuple(COLUMNS)) for time in ("t", None))

Row = tuple[str, int, bool]
ROWS = st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 4), st.booleans()), max_size=60)


def put_aside_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task_rows, "_COALESCE_AT", 5)
    patch.setattr(spilling, "_MOST_ROWS", 3)
    patch.setattr(spilling, "_BATCH_ROWS", 2)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The folder where everything is put aside."""
    put_aside_early(monkeypatch)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/there/is/none,{tmp_path}")
    return tmp_path


@settings(max_examples=100, deadline=None)
@given(rows=ROWS, width=st.integers(1, 7), timed=st.booleans(), system=st.booleans(), data=st.data())
def test_as_if_all_had_stayed_in_memory(rows, width, timed, system, data):
    layout = TIMED if timed else UNTIMED
    order = data.draw(st.permutations(range(len(rows))))
    parts = [_part(rows, order[start : start + width], system) for start in range(0, len(rows), width)]
    whole = _gathered(layout, parts)
    with pytest.MonkeyPatch.context() as patch:
        put_aside_early(patch)
        assert _gathered(layout, parts) == whole


def test_nothing_of_it_stays_on_the_disk(small):
    with contextlib.closing(RowBuffer(TIMED, TIMED.arrow_schema())) as gathering:
        for start in range(0, 40, 4):
            gathering.add(_part([(f"key {n}", n, False) for n in range(40)], range(start, start + 4), True))
        assert gathering.runs >= 3
        assert list(small.iterdir())
        assert sum(rows.rows.num_rows for _, rows in gathering.by_bucket()) == 40
        assert gathering.incoming.rows == 40
    assert list(small.iterdir()) == []


def test_a_disk_that_does_not_take_them_is_named(small):
    part = [_part([(f"key {n}", n, False) for n in range(20)], range(start, start + 5), True) for start in (0, 5, 10)]
    with contextlib.closing(RowBuffer(TIMED, TIMED.arrow_schema())) as gathering:
        gathering.add(part[0])
        (folder,) = small.iterdir()
        shutil.rmtree(folder)
        with pytest.raises(EnvironmentMissingError, match=r"cannot be put aside in .*spark\.local\.dir"):
            gathering.add(part[1])


def test_a_table_from_runs_is_the_table_from_memory(make_sink, small):
    sink = make_sink()
    rows = [(key % 37, key, str(key)) for key in range(300)]
    summary = sink.batch(0, [sink.rows(rows[start : start + 20], seq=start) for start in range(0, 300, 20)])
    assert sink.latest() == {key: (time, value) for key, time, value in rows}
    assert (summary.rows, summary.updates, summary.delivered, summary.keys) == (300, 300, 37, 37)
    assert [path for path in small.iterdir() if path.name.startswith("upstream-")] == []


def test_rows_are_chosen_where_one_column_is_too_large_to_be_one_array():
    # What matters is that no step joins the chunks of a column: 2 GB of text would not fit one array of strings.
    rows = pa.table(
        {"k": ["a", "b", "a"], "t": [1, 1, 2], "v": pa.chunked_array([["x"], ["y"], ["z"]]), task_rows.SEQ: [0, 1, 2]}
    )
    newest = newest_rows(BatchRows(rows, None, None, np.ones(3, dtype=np.int64)), TIMED)
    assert newest.rows.column("v").num_chunks > 1
    assert newest.rows.column("v").to_pylist() == ["y", "z"]


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
def test_many_rows_take_the_memory_of_few(tmp_path):
    small, large = megabytes_taken(tmp_path / "1", 2_500_000, 32), megabytes_taken(tmp_path / "2", 10_000_000, 128)
    # Four times the rows, in buckets of one size: what a task holds is the same but for what the system gives back
    # late.
    assert large < 1.5 * small


def _part(rows: list[Row], order: Any, system: bool) -> pa.RecordBatch:
    mine = [rows[place] for place in order]
    seq: Any = np.array(order, dtype=np.int64)
    columns = [pa.array([row[0] for row in mine]), pa.array([row[1] for row in mine], pa.int64())]
    columns.append(pa.array([str(place) for place in order]))
    names = ["k", "t", "v"]
    if system:
        deleted = np.array([row[2] for row in mine], dtype=np.bool_)
        columns.append(system_array(source="f", seq=seq, arrival_us=seq + 100, deleted=deleted))
        names.append(SYSTEM)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _gathered(layout: Layout, parts: list[pa.RecordBatch]) -> Any:
    """Per bucket each key's row with all that goes with it; and the counts."""
    found: dict[int, list[Any]] = {}
    with contextlib.closing(RowBuffer(layout, layout.arrow_schema())) as gathering:
        for part in parts:
            gathering.add(part)
        for bucket, rows in gathering.by_bucket():
            count = rows.rows.num_rows
            deleted = np.zeros(count, np.bool_) if rows.deleted is None else rows.deleted
            beside = [
                [None] * count if each is None else each.tolist()
                for each in (rows.arrival_us, rows.first_arrival_us, rows.covered, deleted)
            ]
            assert bucket not in found
            found[bucket] = sorted(
                zip(*(column.to_pylist() for column in rows.rows.columns), *beside, strict=True), key=repr
            )
        return found, gathering.incoming.rows, gathering.incoming.updates
