"""What a task is given: counted, numbered, coalesced, refused."""

import contextlib
import dataclasses
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

from upstream.conf.errors import EnvironmentMissingError, MalformedRowError
from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.core.watermark.bounds import beginning
from upstream.delta_format.latest_table import NOTHING_YET, SEQ
from upstream.sink.merge import task_rows
from upstream.sink.merge import task_rows as incoming_module
from upstream.sink.merge import task_rows as spilling
from upstream.sink.merge.batch_rows import BatchRows
from upstream.sink.merge.newest_rows import newest_rows
from upstream.sink.merge.task_rows import RowBuffer, TaskRows, bound_values, later_bound
from upstream.sink.spec.layout import Layout

from .rows import DATA, LEAST, MOST, batch, data, layout, shown


def incoming(**more: Any) -> TaskRows:
    return TaskRows(more.pop("layout", layout()), DATA, **more)


def test_what_a_task_is_given_is_counted_and_numbered():
    gathered = incoming(base=1000)
    assert (gathered.highest, gathered.rows, gathered.updates, gathered.bounds, gathered.kept) == (-1, 0, 0, {}, (0, 0))
    assert gathered.drain().rows.num_rows == 0
    gathered.add(batch(("a", 1, "x"), ("b", 1, "y"), seq=5, covered=np.array([3, 1])))
    gathered.add(batch(("a", 0, "older"), arrival=50, seq=2, first_arrival_us=np.array([40])))
    assert (gathered.highest, gathered.rows, gathered.updates) == (1006, 3, 5)
    newest = gathered.drain()
    assert shown(newest) == [("a", 1, "x", 4), ("b", 1, "y", 1)]
    assert newest.rows.column(SEQ).to_pylist() == [1005, 1006]
    assert newest.first_arrival_us is not None
    assert newest.arrival_us is not None
    assert (newest.first_arrival_us.tolist(), newest.arrival_us.tolist()) == ([40, 101], [100, 101])
    assert gathered.drain().rows.num_rows == 0, "they are held no more"


def test_rows_without_the_system_column():
    gathered = incoming()
    gathered.add(data(("a", 1, "x", 0)).drop_columns(SEQ).to_batches()[0])
    newest = gathered.drain()
    assert (newest.arrival_us, newest.first_arrival_us, newest.deleted) == (None, None, None)
    assert newest.rows.column(SEQ).to_pylist() == [None]
    assert (gathered.highest, gathered.rows, gathered.updates) == (-1, 1, 1)


def test_rows_that_do_not_say_when_they_came():
    given = batch(("a", 1, "x"), ("b", 1, "y"))
    system = given.column(SYSTEM)
    names = [field.name for field in system.type]
    nulls = ("seq", "arrival", "first_arrival", "covered")
    parts = [pa.nulls(2, system.field(name).type) if name in nulls else system.field(name) for name in names]
    unsaid = pa.StructArray.from_arrays(parts, fields=list(system.type))
    gathered = incoming()
    gathered.add(given.set_column(given.schema.get_field_index(SYSTEM), SYSTEM, unsaid))
    newest = gathered.drain()
    assert newest.arrival_us is not None
    assert newest.first_arrival_us is not None
    assert newest.arrival_us.tolist() == newest.first_arrival_us.tolist() == [MOST, MOST]
    assert newest.covered.tolist() == [1, 1]
    assert gathered.highest == -1


def test_punctuation_is_taken_out_and_speaks_for_its_feed():
    gathered = incoming()
    for time, source in ((5, "one"), (9, "one"), (7, "one"), (4, "two"), (None, "three")):
        gathered.add(batch((None, time, None), source=source, punctuation=True))
    gathered.add(batch(("a", 99, None), source="two", punctuation=True))
    assert (gathered.rows, gathered.bounds) == (0, {"one": 9, "two": 4, "three": None})
    both = pa.Table.from_batches([batch(("a", 1, "x")), batch((None, 6, None), source="two", punctuation=True)])
    gathered.add(both.combine_chunks().to_batches()[0])
    assert (gathered.rows, gathered.bounds["two"]) == (1, 6)
    row = gathered.drain()
    assert (row.rows.column(SEQ).to_pylist(), row.arrival_us is None) == ([0], False), "its numbers stay"
    two_keys = TaskRows(dataclasses.replace(layout(), key=Key(("k", "v"))), DATA)
    two_keys.add(batch(("a", 5, None), (None, 6, "x"), source="one", punctuation=True))
    assert two_keys.bounds == {}, "each for one key"
    untimed = TaskRows(Layout(Key(("k",)), None, 4, (), progress_time=None), DATA)
    untimed.add(batch((None, 5, None), punctuation=True))
    assert untimed.bounds == {}


def test_deletions_by_either_column():
    gathered = incoming()
    gathered.add(batch(("a", 1, "x"), ("b", 1, "y"), deleted=np.array([False, True])))
    deleted = gathered.drain().deleted
    assert deleted is not None
    assert deleted.tolist() == [False, True]
    named = incoming(layout=layout(delete_when="gone"))
    plain = batch(("a", 1, "x"), ("b", 1, "y"), ("c", 1, "z"))
    named.add(plain.append_column("gone", pa.array([None, False, False])))
    assert named.drain().deleted is None
    one_more = batch(("a", 1, "x"), ("b", 1, "y"), ("c", 1, "z"), deleted=np.array([False, True, False]))
    named.add(one_more.append_column("gone", pa.array([None, False, True])))
    found = named.drain().deleted
    assert found is not None
    assert (found.dtype, found.tolist()) == (np.dtype(np.bool_), [False, True, True])


class Noted:
    """Takes note of what is put aside."""

    looks_at_text = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[str], int | None, list[bool] | None]] = []

    def _note(self, what: str, rows: pa.Table, system: pa.ChunkedArray | None, deleted: Any) -> None:
        keys = rows.column("k").cast(pa.binary()).to_pylist()
        seen = (what, [key.decode(errors="replace") for key in keys], None if system is None else len(system))
        self.seen.append((*seen, None if deleted is None else deleted.tolist()))

    def look(self, *given: Any) -> None:
        self._note("look", *given)

    def no_text(self, *given: Any) -> None:
        self._note("no text", *given)

    def lost(self, rows: BatchRows) -> None:
        self._note("lost", rows.rows, None, rows.deleted)


def test_what_is_put_aside_is_reported_with_its_marks():
    side_rows: Any = Noted()
    gathered = incoming(side_rows=side_rows)
    rows = batch(("a", 1, "x"), ("b", 1, "y"), deleted=np.array([False, True]))
    gathered.add(rows)
    assert side_rows.seen == [("look", ["a", "b"], 2, [False, True])]
    side_rows.seen.clear()
    wrong = pa.array([b"a", b"\xff"]).view(pa.string())
    gathered.add(rows.set_column(0, "k", wrong))
    assert side_rows.seen == [("no text", ["\ufffd"], 1, [True]), ("look", ["a"], 1, None)]
    side_rows.seen.clear()
    gathered.add(rows.select([0, 1, 2]).set_column(0, "k", wrong))
    assert side_rows.seen == [("no text", ["\ufffd"], None, None)]
    assert (gathered.rows, shown(gathered.drain())) == (6, [("b", 1, "y", 1), ("a", 1, "x", 3)])


def test_rows_are_coalesced_once_enough_more_are_held(monkeypatch):
    monkeypatch.setattr(incoming_module, "_COALESCE_AT", 3)
    gathered = incoming()
    gathered.add(batch(("a", 1, "x"), ("a", 2, "y")))
    assert gathered.kept == (0, 0)
    gathered.add(batch(("b", 1, "z"), seq=2))
    rows, size = gathered.kept
    assert rows == 2
    assert size > 0
    gathered.add(batch(("b", 2, "z"), ("b", 3, "z"), seq=3))
    assert gathered.kept == (rows, size), "so many more than were left"
    gathered.add(batch(("c", 2, "z"), seq=5))
    assert gathered.kept[0] == 3
    assert gathered.drain().covered.tolist() == [2, 3, 1]
    assert gathered.kept == (0, 0)
    monkeypatch.setattr(incoming_module, "_COALESCE_AT", 100)
    monkeypatch.setattr(incoming_module, "_COALESCE_BYTES", 1)
    gathered.add(batch(("c", 2, "z")))
    assert gathered.kept[0] == 1


def test_rows_that_cannot_be_taken():
    for bad, message in (((None, 1, "x"), "null in the key column 'k'"), (("a", None, "x"), "no usable time")):
        with pytest.raises(MalformedRowError, match=f"1 of 2 rows have (a )?{message}"):
            incoming().add(batch(bad, ("b", 1, "x")))
    incoming(layout=layout(time=None)).add(batch(("a", None, "x")))
    with pytest.raises(MalformedRowError, match="1 of 2 rows delete their keys"):
        incoming(layout=layout(keep=None)).add(batch(("a", 1, "x"), ("b", 1, "x"), deleted=np.array([True, False])))
    incoming(base=2**62 - 2).add(batch(("a", 1, "x"), seq=1))
    with pytest.raises(MalformedRowError, match="a row is numbered 2"):
        incoming(base=2**62 - 2).add(batch(("a", 1, "x"), seq=2))
    floats = pa.schema([("k", pa.string()), ("t", pa.float64()), (SEQ, pa.int64())])
    for times in ([1.5, float("nan")], [1.5, float("inf")]):
        rows = pa.table({"k": ["a", "b"], "t": times}).to_batches()[0]
        if np.isnan(times[1]):
            with pytest.raises(MalformedRowError, match="1 of 2 rows have no usable time"):
                TaskRows(layout(), floats).add(rows)
        else:
            TaskRows(layout(), floats).add(rows)


def test_bounds_as_text_and_numbers():
    def bounds(kind: pa.DataType, *values: Any) -> list[Any]:
        return bound_values(pa.chunked_array([pa.array(values, kind)]))

    assert bounds(pa.timestamp("us", "UTC"), 5, None) == ["1970-01-01T00:00:00.000005Z", None]
    assert bounds(pa.timestamp("ms"), 5) == ["1970-01-01T00:00:00.005000"]
    assert bounds(pa.date32(), 5, None) == ["1970-01-06", None]
    assert bounds(pa.int64(), 5, LEAST) == [5, NOTHING_YET]
    assert bounds(pa.float64(), 1.5, float("inf"), float("nan"), None) == [1.5, None, None, None]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int16(), pa.float32()])
def test_bounds_compare_as_the_times_do(kind):
    numbers = [3, -400, 0, 20_000, 7]
    column = pa.chunked_array([pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)])
    bounds = bound_values(column)
    assert sorted(range(5), key=bounds.__getitem__) == np.argsort(numbers).tolist()
    assert bound_values(pa.chunked_array([pa.array([None], kind)])) == [None]


def test_a_feed_of_which_nothing_is_known_is_below_all_bounds():
    kind = pa.timestamp("us", "UTC")
    (least,) = bound_values(pa.chunked_array([pa.array([beginning(kind).as_py()], kind)]))
    assert least == NOTHING_YET
    assert later_bound(least, "2024-01-01T00:00:00.000000Z") == "2024-01-01T00:00:00.000000Z"
    assert (later_bound(5, least), later_bound(least, None), later_bound(least, least)) == (5, None, least)
    # A feed that has ended stays ended.
    assert later_bound(3, 5) == 5
    assert later_bound(None, 5) is None
    assert later_bound(5, None) is None


COLUMNS = [("k", '"string"'), ("t", '"long"'), ("v", '"string"')]
TIMED, UNTIMED = (Layout(Key(("k",)), time, 3, tuple(COLUMNS)) for time in ("t", None))
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
        with pytest.raises(EnvironmentMissingError, match=r"cannot be spilled to .*spark\.local\.dir"):
            gathering.add(part[1])


def test_a_table_from_runs_is_the_table_from_memory(make_sink, small):
    sink = make_sink()
    rows = [(key % 37, key, str(key)) for key in range(300)]
    summary = sink.batch(0, [sink.rows(rows[start : start + 20], seq=start) for start in range(0, 300, 20)])
    assert sink.latest() == {key: (time, value) for key, time, value in rows}
    assert (summary.rows, summary.updates, summary.applied, summary.keys) == (300, 300, 37, 37)
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
sink = Sink(Path(sys.argv[2]), columns, {"key": "k", "eventTime": "t", "buckets": buckets}, system=False)

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


# Freed memory goes back to the system at once. By default allocators wait, and how long depends on the load.
PROMPT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
PROMPT |= {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": "0"}


def megabytes_taken(folder: Path, rows: int, buckets: int) -> int:
    """By one task that loads so many rows, each with a key of its own."""
    done = run_python(TASK, ROOT / "tests", folder, str(rows), str(buckets), **PROMPT)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
def test_many_rows_take_the_memory_of_few(tmp_path):
    small, large = megabytes_taken(tmp_path / "1", 2_500_000, 32), megabytes_taken(tmp_path / "2", 10_000_000, 128)
    # Four times the rows, in buckets of one size: what a task holds is the same.
    assert large < 1.2 * small


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
