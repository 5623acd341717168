"""Windows that every n-th row of a key opens, in the order of time; test_arrival_numbers has both orders."""

import copy
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlideByTupleWindows
from upstream.operators.windows.shards.plan import OPENS
from upstream.operators.windows.shards.row_numbers import KeyCounts

from .drawn import END, METHODS, any_batches, everything, plan_of, slides_by_rows
from .windows_of import Run, agree


def test_a_late_row_has_no_number_and_counts_where_windows_are_open():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "time"), shards=1))
    run.batches([([(1, 1, 1), (1, 2, 2), (1, 5, 4)], 6), ([(1, 3, 8), (1, 9, 16)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(2, 3), (9, 31)]
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]


KEY = pa.schema([("key", pa.int64()), ("name", pa.string())])
BATCHES = st.lists(st.dictionaries(st.integers(0, 2500), st.integers(1, 9), max_size=30), max_size=6)


@given(batches=BATCHES, many=st.booleans())
def test_counts_add_up_over_batches_and_restarts(batches, many):
    store, saved, counted = DictStore(), {}, Counter[int]()
    for batch in [dict.fromkeys(range(2000), 1)] * many + batches:
        counts = KeyCounts(store, KEY, saved)
        keys = pa.table([list(batch), [str(key) for key in batch]], schema=KEY)
        before = counts.count(keys, np.array(list(batch.values()), dtype=np.int64))
        assert before.tolist() == [counted[key] for key in batch]
        counted.update(batch)
        saved = counts.to_json()
    assert saved.get("rows", 0) == len(counted)


@pytest.mark.parametrize("order", ["arrival", "time"])
@given(
    st.integers(1, 12),
    st.integers(2, 4),
    any_batches(),
    st.sampled_from(["all", "lazy"]),
    METHODS,
    st.sampled_from([1, 2]),
)
def test_every_nth_row_opens_a_window_whatever_the_batches(order, length, every, batches, emit, method, tasks):
    run = Run(plan_of(SlideByTupleWindows(length, every, order), emit, method))
    for batch in batches:
        again = copy.deepcopy(run)
        again.batches([batch], tasks)
        run.batches([batch], tasks)
        assert again.results == run.results, "a batch that is run again gives the same"
    rows = everything(batches)
    wanted = slides_by_rows(sorted(rows) if order == "time" else rows, length, every)
    got = {(row["key"], row["window_id"]): (row["n"], row["total"]) for row in run.results}
    assert len(got) == len(run.results), "a window closes once"
    assert all(OPENS not in row for row in run.results)
    agree(got, wanted, emit)


def test_a_window_ends_with_its_row_and_begins_after_its_range():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 10, 1), (1, 20, 2), (1, 20, 4), (1, 20, 8), (1, 21, 16), (1, 11, 32)], 20), ([], 21)])
    assert [(row["batch"], row["window_id"], row["total"]) for row in run.results] == [(1, 11, 33), (2, 20, 46)]


def test_a_late_row_has_a_number_and_opens_no_window():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 5, 1)], 6), ([(1, 3, 2)], None), ([(1, 7, 4), (1, 9, 8)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(9, 15)]
    assert [table.column("v").to_pylist() for table in run.late] == [[2]]
    assert run.late[0].column_names == ["key", "time", "v", SYSTEM], "as it came"


@pytest.mark.parametrize("order", ["arrival", "time"])
@pytest.mark.parametrize(("keys", "pages"), [(1, 1), (3000, 4)])
def test_a_batch_touches_the_pages_of_the_keys_whose_rows_it_counts(order, keys, pages):
    run = Run(plan_of(SlideByTupleWindows(5, 3, order), shards=1))
    for time in range(7):
        run.batches([([(key, time, 1) for key in range(keys)], time + 1)])
    assert sorted({row["window_id"] for row in run.results}) == [2, 5]
    assert len(run.results) == 2 * keys
    assert [kind for kind, _ in run.stores[0].values].count("numbers") == pages
