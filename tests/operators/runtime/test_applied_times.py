"""The last applied time of each key, against a dictionary."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.runtime import applied_times
from upstream.operators.runtime.applied_times import AppliedTimes, TimedKeys, behind
from upstream.operators.state.store import DictStore

TEXT = pa.schema([("k", pa.string()), ("n", pa.int64())])


def timed(keys, times):
    """Several keys have one number."""
    columns = [[f"k{key // 2}" for key in keys], [key % 2 for key in keys]]
    arrays = [pa.chunked_array([pa.array(column, field.type)]) for column, field in zip(columns, TEXT, strict=True)]
    return TimedKeys(arrays, np.array([key % 4 for key in keys], dtype=np.int64), np.array(times, dtype=np.int64))


rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=12)


@given(batches=st.lists(st.tuples(rows, st.integers(0, 25)), max_size=12), few=st.sampled_from([1, 4, 8192]))
def test_rows_are_older_than_what_was_applied_or_not_until_it_is_forgotten(batches, few):
    store, saved, known, bound = DictStore(), {}, {}, LOWEST
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applied_times, "_FEW", few)
        for some, promise in batches:
            memory = AppliedTimes(store, TEXT, json.loads(json.dumps(saved)))
            keys, times = [key for key, _ in some], [time for _, time in some]
            older = memory.older(timed(keys, times)).tolist()
            for (key, time), found in zip(some, older, strict=True):
                # Whatever is late may be found to be older: its run may not have gone yet.
                assert found == (time < known.get(key, -1)) or (found and time < bound)
                assert found or time >= known.get(key, -1)
            bound = max(bound, promise)
            memory.add(timed(keys, times), bound)
            for key, time in some:
                known[key] = max(known.get(key, -1), time)
            known = {key: time for key, time in known.items() if time >= bound}
            assert len(memory) <= max(2 * max(few, len(known)), 12 * len(batches))
            saved = memory.to_json()
    memory = AppliedTimes(store, TEXT, saved)
    memory.add(timed([], []), 26)
    assert (len(memory), store.values) == (0, {})


def test_entries_are_compacted_to_one_for_each_key(monkeypatch):
    monkeypatch.setattr(applied_times, "_FEW", 10)
    memory = AppliedTimes(DictStore(), TEXT, {})
    for time in range(200):
        memory.add(timed(range(4), [time] * 4), 0)
        assert len(memory) <= 24
    assert memory.older(timed([3, 3, 4], [198, 199, 0])).tolist() == [True, False, False]


def test_rows_newer_than_all_that_was_applied_read_nothing():
    store = DictStore()
    memory = AppliedTimes(store, TEXT, {})
    memory.add(timed([1, 2], [5, 6]), 0)
    reads = []
    store.get = lambda kind, page: reads.append((kind, page))
    memory = AppliedTimes(store, TEXT, memory.to_json())
    assert not memory.older(timed([1, 2], [6, 7])).any()
    assert reads == []


def test_keys_of_another_type_are_not_known():
    store = DictStore()
    memory = AppliedTimes(store, TEXT, {})
    memory.add(timed([1], [5]), 0)
    again = AppliedTimes(store, TEXT.set(0, pa.field("k", pa.int64())), memory.to_json())
    assert (len(again), store.values) == (0, {})


def test_numbers_alone_tell_keys_apart_where_there_are_no_columns():
    memory = AppliedTimes(DictStore(), pa.schema([]), {})
    numbered = TimedKeys([], np.array([1, 1 << 40]), np.array([5, 6]))
    memory.add(numbered, 0)
    assert memory.older(numbered._replace(times=np.array([4, 6]))).tolist() == [True, False]
    assert behind(TimedKeys([], np.array([1, 2, 1, 2]), np.array([5, 3, 4, 3]))).tolist() == [False, False, True, False]


@given(some=rows)
def test_rows_behind_an_earlier_one_of_their_key(some):
    keys, times = [key for key, _ in some], [time for _, time in some]
    expected = [any(keys[at] == key and times[at] > time for at in range(n)) for n, (key, time) in enumerate(some)]
    assert behind(timed(keys, times)).tolist() == expected
