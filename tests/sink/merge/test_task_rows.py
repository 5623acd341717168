"""What a task is given: counted, numbered, coalesced, refused."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import MalformedRowError
from upstream.core.rows.system_column import SYSTEM
from upstream.delta_format.latest_table import SEQ
from upstream.sink.merge import task_rows as incoming_module
from upstream.sink.merge.batch_rows import BatchRows
from upstream.sink.merge.task_rows import TaskRows
from upstream.sink.spec.layout import Layout

from .rows import DATA, MOST, batch, data, layout, shown


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
    two_keys = TaskRows(dataclasses.replace(layout(), key=("k", "v")), DATA)
    two_keys.add(batch(("a", 5, None), (None, 6, "x"), source="one", punctuation=True))
    assert two_keys.bounds == {}, "each for one key"
    untimed = TaskRows(Layout(("k",), None, 4, (), progress_time=None), DATA)
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
