"""What a batch's rows stand for and which of them win, worked out by hand and without a table."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import MalformedRowError
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.delta_format.latest_table import NOTHING_YET, SEQ
from upstream.sink.merge import incoming as incoming_module
from upstream.sink.merge.contest import contest
from upstream.sink.merge.feed_bounds import bound_values
from upstream.sink.merge.incoming import Incoming
from upstream.sink.merge.newest_rows import newest_rows
from upstream.sink.merge.pending import UNKNOWN, Pending, as_pending, concat_pending, seq_in_order
from upstream.sink.spec.history import Keep
from upstream.sink.spec.layout import Layout

LEAST, MOST = -(2**63), 2**63 - 1
DATA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string()), (SEQ, pa.int64())])


def layout(time: str | None = "t", keep: int | None = 1, **more: Any) -> Layout:
    fields = tuple((name, json.dumps(kind)) for name, kind in (("k", "string"), ("t", "long"), ("v", "string")))
    return Layout(("k",), time, 4, fields, progress_time="t", keep=Keep(keep), **more)


def data(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows (key, time, payload, number)."""
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 4, schema=DATA)


def batch(*rows: tuple[Any, ...], arrival: int = 100, **more: Any) -> pa.RecordBatch:
    """Rows (key, time, payload) as a source gives them, numbered from `seq` on."""
    seq = more.pop("seq", 0)
    plain = data(*((*row, 0) for row in rows)).drop_columns(SEQ)
    n = len(rows)
    system = system_array(
        source=more.pop("source", "feed"),
        seq=np.arange(seq, seq + n, dtype=np.int64),
        arrival_us=np.arange(arrival, arrival + n, dtype=np.int64),
        **more,
    )
    return plain.append_column(SYSTEM, system).combine_chunks().to_batches()[0]


def shown(pending: Pending) -> list[tuple[Any, ...]]:
    columns = [pending.rows.column(name).to_pylist() for name in ("k", "t", "v")]
    return list(zip(*columns, pending.covered.tolist(), strict=True))


def test_rows_of_which_only_the_columns_are_known() -> None:
    pending = as_pending(data(("a", 1, "x", 0), ("b", 2, "y", 1)))
    assert (pending.arrival_us, pending.first_arrival_us, pending.deleted) == (None, None, None)
    assert pending.covered.tolist() == [1, 1]
    assert shown(pending.take(np.array([1]))) == [("b", 2, "y", 1)]
    assert shown(pending.slice(1, 2)) == [("b", 2, "y", 1)]


def full(*rows: tuple[Any, ...]) -> Pending:
    """Rows (key, time, payload, number, arrival, first arrival, covered, deleted)."""
    columns = [np.array([row[at] for row in rows]) for at in range(4, 8)]
    return Pending(data(*(row[:4] for row in rows)), *columns)


THREE = full(("a", 1, "x", 0, 10, 7, 2, False), ("b", 2, "y", 1, 11, 8, 3, True), ("c", 3, "z", 2, 12, 9, 4, False))


@pytest.mark.parametrize("how", ["take", "chosen", "slice"])
def test_some_rows_take_along_what_they_stand_for(how: str) -> None:
    given: tuple[Any, ...] = {
        "take": (np.array([1, 2]),),
        "chosen": (np.array([False, True, True]),),
        "slice": (1, 3),
    }[how]
    some = getattr(THREE, how)(*given)
    assert shown(some) == [("b", 2, "y", 3), ("c", 3, "z", 4)]
    assert some.arrival_us.tolist() == [11, 12]
    assert some.first_arrival_us.tolist() == [8, 9]
    assert some.deleted.tolist() == [True, False]


def test_rows_of_several_tasks_as_one() -> None:
    plain = as_pending(data(("d", 4, "w", 3)))
    assert concat_pending([THREE]) is THREE
    both = concat_pending([THREE, plain])
    assert shown(both) == [*shown(THREE), ("d", 4, "w", 1)]
    assert (both.arrival_us, both.first_arrival_us) == (None, None), "not all of them know it"
    assert both.deleted is not None
    assert (both.deleted.dtype, both.deleted.tolist()) == (np.dtype(np.bool_), [False, True, False, False])
    assert concat_pending([plain, plain]).deleted is None
    twice = concat_pending([THREE, THREE])
    assert twice.arrival_us is not None
    assert twice.first_arrival_us is not None
    assert (twice.arrival_us.tolist(), twice.first_arrival_us.tolist()) == ([10, 11, 12] * 2, [7, 8, 9] * 2)


def test_the_newest_row_of_a_key_stands_for_all() -> None:
    rows = full(
        ("a", 5, "later", 9, 10, 7, 2, False),
        ("b", 1, "only", 3, 11, 8, 3, True),
        ("a", 5, "sooner", 4, 12, 5, 4, False),
        ("a", 4, "older", 8, 13, 6, 1, True),
    )
    newest = newest_rows(rows, layout())
    assert shown(newest) == [("a", 5, "later", 7), ("b", 1, "only", 3)]
    assert newest.first_arrival_us is not None
    assert newest.deleted is not None
    assert (newest.first_arrival_us.tolist(), newest.deleted.tolist()) == ([5, 8], [False, True])
    assert newest_rows(rows, layout(keep=None)) is rows
    assert newest_rows(rows.slice(0, 0), layout()).rows.num_rows == 0
    by_arrival = newest_rows(rows, layout(time=None))
    assert shown(by_arrival) == [("b", 1, "only", 3), ("a", 4, "older", 7)]
    plain = newest_rows(as_pending(rows.rows), layout(time=None))
    assert shown(plain) == [("a", 5, "later", 3), ("b", 1, "only", 1)], "without arrivals by their numbers"
    assert plain.first_arrival_us is None
    in_order = newest_rows(as_pending(data(("a", 1, "x", 1), ("a", 1, "y", 1), ("b", 1, "z", 2))), layout())
    assert shown(in_order) == [("a", 1, "y", 2), ("b", 1, "z", 1)]


def test_several_rows_of_a_key_stand_for_themselves() -> None:
    rows = full(
        ("a", 5, "1st", 9, 10, 7, 2, False),
        ("a", 6, "2nd", 4, 12, 5, 4, False),
        ("a", 4, "3rd", 8, 13, 6, 1, False),
    )
    assert shown(newest_rows(rows, layout(keep=2))) == [("a", 5, "1st", 2), ("a", 6, "2nd", 4)]
    plain = as_pending(data(("a", 1, "x", 0), ("a", 3, "y", 1), ("a", 2, "z", 2)))
    assert shown(newest_rows(plain, layout(keep=2))) == [("a", 3, "y", 1), ("a", 2, "z", 1)]


def test_who_wins_against_what_is_held() -> None:
    held = data(("a", 5, "", 3), ("b", 5, "", 3), ("c", 5, "", 3), ("d", 5, "", 3))
    new = data(("d", 4, "", 9), ("c", 5, "", 2), ("b", 5, "", 3), ("e", 0, "", 0), ("a", 6, "", 0), ("x", 1, "", None))
    found = contest(held, new, layout())
    assert found.rival.tolist() == [3, 2, 1, -1, 0, -1]
    assert found.won.tolist() == [False, False, True, True, True, True]
    assert found.tied.tolist() == [False, True, True, False, False, False]
    assert found.stays(4).tolist() == [False, False, True, True]
    assert found.stays(4, np.zeros(6, dtype=np.bool_)).tolist() == [True] * 4
    unnumbered = contest(held, data(("a", 5, "", None), ("b", 4, "", None)), layout())
    assert unnumbered.won.tolist() == [True, False], "it came after what is held"
    by_arrival = contest(held, new, layout(time=None))
    assert (by_arrival.won.tolist(), by_arrival.tied.tolist()) == ([True] * 6, [False] * 6)
    empty = contest(held.slice(0, 0), new, layout())
    assert (empty.rival.tolist(), empty.won.tolist(), empty.tied.tolist()) == ([-1] * 6, [True] * 6, [False] * 6)


def test_rows_without_a_number_came_after_what_is_held() -> None:
    table = data(("a", 1, "", None), ("a", 1, "", 5), ("a", 1, "", None), ("a", 1, "", 6))
    assert seq_in_order(table, 2).tolist() == [LEAST, 5, UNKNOWN, 6]
    assert table.column(SEQ).null_count == 2


def test_bounds_as_text_and_numbers() -> None:
    def bounds(kind: pa.DataType, *values: Any) -> list[Any]:
        return bound_values(pa.chunked_array([pa.array(values, kind)]))

    assert bounds(pa.timestamp("us", "UTC"), 5, None) == ["1970-01-01T00:00:00.000005Z", None]
    assert bounds(pa.timestamp("ms"), 5) == ["1970-01-01T00:00:00.005000"]
    assert bounds(pa.date32(), 5, None) == ["1970-01-06", None]
    assert bounds(pa.int64(), 5, LEAST) == [5, NOTHING_YET]
    assert bounds(pa.float64(), 1.5, float("inf"), float("nan"), None) == [1.5, None, None, None]


def incoming(**more: Any) -> Incoming:
    return Incoming(more.pop("layout", layout()), DATA, **more)


def test_what_a_task_is_given_is_counted_and_numbered() -> None:
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


def test_rows_without_the_system_column() -> None:
    gathered = incoming()
    gathered.add(data(("a", 1, "x", 0)).drop_columns(SEQ).to_batches()[0])
    newest = gathered.drain()
    assert (newest.arrival_us, newest.first_arrival_us, newest.deleted) == (None, None, None)
    assert newest.rows.column(SEQ).to_pylist() == [None]
    assert (gathered.highest, gathered.rows, gathered.updates) == (-1, 1, 1)


def test_rows_that_do_not_say_when_they_came() -> None:
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


def test_punctuation_is_taken_out_and_speaks_for_its_feed() -> None:
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
    two_keys = Incoming(dataclasses.replace(layout(), key=("k", "v")), DATA)
    two_keys.add(batch(("a", 5, None), (None, 6, "x"), source="one", punctuation=True))
    assert two_keys.bounds == {}, "each for one key"
    untimed = Incoming(Layout(("k",), None, 4, (), progress_time=None), DATA)
    untimed.add(batch((None, 5, None), punctuation=True))
    assert untimed.bounds == {}


def test_deletions_by_either_column() -> None:
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

    def lost(self, rows: Pending) -> None:
        self._note("lost", rows.rows, None, rows.deleted)


def test_what_is_put_aside_is_told_with_its_marks() -> None:
    aside: Any = Noted()
    gathered = incoming(aside=aside)
    rows = batch(("a", 1, "x"), ("b", 1, "y"), deleted=np.array([False, True]))
    gathered.add(rows)
    assert aside.seen == [("look", ["a", "b"], 2, [False, True])]
    aside.seen.clear()
    wrong = pa.array([b"a", b"\xff"]).view(pa.string())
    gathered.add(rows.set_column(0, "k", wrong))
    assert aside.seen == [("no text", ["\ufffd"], 1, [True]), ("look", ["a"], 1, None)]
    aside.seen.clear()
    gathered.add(rows.select([0, 1, 2]).set_column(0, "k", wrong))
    assert aside.seen == [("no text", ["\ufffd"], None, None)]
    assert (gathered.rows, shown(gathered.drain())) == (6, [("b", 1, "y", 1), ("a", 1, "x", 3)])


def test_rows_are_coalesced_once_enough_more_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_rows_that_cannot_be_taken() -> None:
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
                Incoming(layout(), floats).add(rows)
        else:
            Incoming(layout(), floats).add(rows)
