"""Rows by key: what is read is what was written, and pages of other keys are left alone."""

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.zsets import key_numbers
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
