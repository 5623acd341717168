import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.state.pages import KeyPages
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("n", pa.int64()), ("v", pa.int64())])


def rows(numbers, value=0):
    return pa.table({"n": np.array(numbers, dtype=np.int64), "v": np.full(len(numbers), value)}, schema=SCHEMA)


def put(pages, numbers, value):
    """Replace the rows of some numbers, as a batch does."""
    touched = pages.pages(np.array(numbers, dtype=np.int64))
    before = pages.read(touched)
    kept = before.filter(pa.array(~np.isin(before.column("n").to_numpy(), numbers)))
    pages.write(touched, before.num_rows, pa.concat_tables([kept, rows(numbers, value)]))


@given(st.lists(st.lists(st.integers(-(2**40), 2**40), unique=True, max_size=600), max_size=6))
def test_every_number_has_what_was_written_last(batches):
    store, saved, expected = DictStore(), {}, {}
    for value, numbers in enumerate(batches):
        # Who does not ask for the bytes does not remember them for who asks later.
        pages = KeyPages(store, "rows", "n", SCHEMA, json.loads(json.dumps(saved)), sized=value % 3 > 0)
        put(pages, numbers, value)
        assert pages.bytes == (sum(map(len, store.values.values())) if value % 3 else 0)
        saved = pages.to_json()
        assert ("sizes" in saved) == (value % 3 > 0)
        expected.update(dict.fromkeys(numbers, value))
    pages = KeyPages(store, "rows", "n", SCHEMA, saved)
    assert pages.rows == len(expected)
    found = pages.read(pages.pages(np.array(list(expected), dtype=np.int64)))
    assert dict(zip(found.column("n").to_pylist(), found.column("v").to_pylist(), strict=True)) == expected
    pages.clear()
    assert (pages.bytes, store.values) == (0, {})


def test_pages_grow_beyond_the_1024th_row_and_hold_about_as_many_each():
    store = DictStore()
    pages = KeyPages(store, "rows", "n", SCHEMA, {})
    put(pages, range(1024), 0)
    assert len(store.values) == 1
    put(pages, [1024], 0)
    assert len(store.values) == 2
    put(pages, range(50_000), 1)
    assert len(store.values) == 64
    again = KeyPages(store, "rows", "n", SCHEMA, pages.to_json())
    assert len(again.pages(np.array([7]))) == 1
    found = again.read(again.pages(np.array([7])))
    assert 200 < found.num_rows < 1600
    assert 7 in found.column("n").to_pylist()


def test_rows_of_an_earlier_run_are_fitted():
    store = DictStore()
    first = KeyPages(store, "rows", "n", SCHEMA, {})
    put(first, [3], 5)
    more = pa.schema([*SCHEMA, ("w", pa.int64())])
    later = KeyPages(store, "rows", "n", more, first.to_json())
    assert later.read(np.array([0])).to_pylist() == [{"n": 3, "v": 5, "w": None}]


def test_pages_with_a_lower_value_are_found_without_reading_them():
    store = DictStore()
    pages = KeyPages(store, "rows", "n", SCHEMA, {}, ("v",))
    assert (pages.least("v"), pages.below("v", 2**62).tolist()) == (None, [])
    put(pages, range(5000), 7)
    put(pages, [3], 2)
    pages = KeyPages(store, "rows", "n", SCHEMA, json.loads(json.dumps(pages.to_json())), ("v",))
    assert pages.least("v") == 2
    assert pages.below("v", 3).tolist() == pages.pages(np.array([3])).tolist()
    assert len(pages.below("v", 2)) == 0
    assert len(pages.below("v", 8)) == 8
    put(pages, [3], 9)
    assert pages.least("v") == 7
    everything = np.arange(8)
    pages.write(everything, 5000, SCHEMA.empty_table())
    assert (pages.least("v"), pages.rows, store.values) == (None, 0, {})
