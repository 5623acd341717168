"""Rows by key: what is read is what was written, and pages of other keys are left alone."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.arrangement import DueRows, OperatorState
from upstream.operators.relations.zsets import TIME, key_numbers
from upstream.operators.state.store import CountingStore, DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def rows(keys, value):
    return pl.DataFrame({"k": keys, "v": [value] * len(keys)}, schema={"k": pl.Int64, "v": pl.Utf8})


@given(st.lists(st.tuples(st.sets(st.integers(0, 3000), max_size=2000), st.sampled_from("abc")), max_size=5))
def test_what_is_read_is_what_was_written(batches):
    store, saved, expected = DictStore(), {}, {}
    for keys, value in batches:
        state = OperatorState(store, "o", saved)
        arrangement = state.arrangement("rows", SCHEMA)
        mine = rows(sorted(keys), value)
        numbers = key_numbers(mine, ["k"])
        found = arrangement.read(numbers)
        assert dict(found.rows()) == {key: expected[key] for key in keys if key in expected}
        arrangement.write(mine, numbers)
        expected.update(dict.fromkeys(keys, value))
        assert arrangement.rows == len(expected)
        saved = state.to_json()
    assert dict(OperatorState(store, "o", saved).arrangement("rows", SCHEMA).read_all().rows()) == expected


def test_pages_of_unchanged_rows_are_not_written_again():
    counting = CountingStore(DictStore())
    arrangement = OperatorState(counting, "o", {}).arrangement("rows", SCHEMA)
    all_ = rows(range(20_000), "a")
    arrangement.read(key_numbers(all_, ["k"]))
    arrangement.write(all_, key_numbers(all_, ["k"]))
    whole, counting.written = counting.written, 0
    numbers = key_numbers(all_, ["k"])
    found = arrangement.read(numbers)
    one = found.get_column("k").to_numpy() == 7
    arrangement.write(rows([7], "b"), key_numbers(rows([7], "b"), ["k"]), one)
    assert 0 < counting.written < whole / 10
    found = arrangement.read(numbers)
    assert sorted(found.rows()) == [(key, "b" if key == 7 else "a") for key in range(20_000)]
    arrangement.write(found.clear(), np.empty(0, dtype=np.int64))
    assert arrangement.rows == 0


DUE = pa.schema([(TIME, pa.int64()), ("v", pa.int64())])


def due_rows(times, value=0):
    return pl.DataFrame({TIME: times, "v": [value] * len(times)}, schema={TIME: pl.Int64, "v": pl.Int64})


@given(st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 60)), max_size=40))
def test_each_row_is_taken_once_when_it_is_due(steps):
    store, saved, expected = DictStore(), {}, []
    for number, (times, until) in enumerate(steps):
        pending = DueRows(store, "p", DUE, saved)
        pending.add(due_rows(times, number))
        expected += [(time, number) for time in times]
        assert sorted(pending.all().rows()) == sorted(expected)
        due = [row for row in expected if row[0] < until]
        assert sorted(pending.take(until).rows()) == sorted(due)
        expected = [row for row in expected if row[0] >= until]
        assert pending.rows == len(expected)
        saved = json.loads(json.dumps(pending.to_json()))
        assert sorted(page for _, page in store.values) == sorted(DueRows.pages_of(saved))


class ReadStore(DictStore):
    def __init__(self):
        super().__init__()
        self.read = 0

    def get(self, kind, page):
        self.read += 1
        return super().get(kind, page)


def test_pages_stay_few_and_a_step_reads_those_that_are_due():
    store = ReadStore()
    pending = DueRows(store, "p", DUE, {})
    for step in range(2000):
        pending.add(due_rows(range(step * 10, step * 10 + 10)))
    assert len(store.values) < 40
    store.read = 0
    assert pending.take(50)[TIME].to_list() == list(range(50))
    assert store.read == 1


TIMES = pa.schema([(TIME, pa.int64())])
ROWS = pl.DataFrame({TIME: range(3000)})


def filled(state):
    arrangement = state.arrangement("a", TIMES)
    numbers = ROWS[TIME].to_numpy()
    arrangement.read(numbers)
    arrangement.write(ROWS, numbers)
    state.pending("p", TIMES).add(ROWS)
    return arrangement


def test_parts_are_found_again_and_are_kept_apart():
    store = DictStore()
    state = OperatorState(store, "o", {})
    state.values["n"] = 4
    filled(state)
    filled(state.within("inner"))
    assert state.rows == 12_000
    again = OperatorState(store, "o", json.loads(json.dumps(state.to_json())))
    assert again.values == {"n": 4}
    assert again.within("inner").arrangement("a", TIMES).read_all().height == 3000
    assert again.pending("p", TIMES).all().height == 3000
    assert OperatorState(store, "other", {}).arrangement("a", TIMES).read(np.arange(3000)).height == 0


def test_all_parts_are_removed_whether_this_process_has_used_them_or_not():
    store = DictStore()
    state = OperatorState(store, "o", {})
    filled(state)
    filled(state.within("inner"))
    other = OperatorState(store, "other", {})
    filled(other)
    saved = state.to_json()
    before = len(store.values)
    half = OperatorState(store, "o", saved)
    half.arrangement("a", TIMES)
    half.clear()
    assert {kind for kind, _ in store.values} == {"other.a/0", "other.p"}
    assert len(store.values) == before / 3
