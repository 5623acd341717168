import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.joins.pair_kernel import equal_keys, is_exact, key_numbers, matches, sorted_rows

TIMES = st.integers(-5, 5) | st.sampled_from([LOWEST, LOWEST + 1, -(1 << 61), 1 << 61, HIGHEST - 1, HIGHEST])
# Few enough to meet, and so far apart that a key and a time are too much for one number.
NUMBERS = st.integers(-2, 2) | st.sampled_from([LOWEST, -(1 << 59), 1 << 59, HIGHEST])


@given(
    st.lists(st.tuples(NUMBERS, TIMES, TIMES), max_size=12),
    st.lists(st.tuples(NUMBERS, TIMES), max_size=12),
    st.integers(1, 9),
)
@example([(1 << 59, -5, 5), (-(1 << 59), -5, 5)], [(-(1 << 59), -5), (0, 3), (1 << 59, -5), (1 << 59, 5)], 9)
def test_every_partner_and_no_other(probes, rows, at_once):
    numbers, times = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    found = sorted_rows(numbers, times, pa.table({"n": numbers, "t": times}))
    asked = [np.array([probe[at] for probe in probes], dtype=np.int64) for at in range(3)]
    pairs = [
        (int(at), int(found.numbers[there]), int(found.times[there]), int(there))
        for some, others in matches(*asked, found, at_once)
        for at, there in zip(some, others, strict=True)
    ]
    expected = [
        (at, number, time, there)
        for at, (key, least, greatest) in enumerate(probes)
        for there, (number, time) in enumerate(zip(found.numbers.tolist(), found.times.tolist(), strict=True))
        if key == number and least <= time <= greatest
    ]
    assert sorted(pairs) == expected


def test_parts_hold_as_many_pairs_as_asked_or_those_of_one_probe():
    rows = sorted_rows(np.zeros(10, dtype=np.int64), np.arange(10), pa.table({"t": np.arange(10)}))
    asked = np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64), np.full(4, 9)
    assert [len(at) for at, _ in matches(*asked, rows, 20)] == [20, 20]
    assert [len(at) for at, _ in matches(*asked, rows, 5)] == [10, 10, 10, 10]


def test_rows_of_one_key_and_time_keep_their_order():
    found = sorted_rows(np.array([2, 1, 2, 2]), np.array([5, 7, 5, 4]), pa.table({"n": [0, 1, 2, 3]}))
    assert found.table.column("n").to_pylist() == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("values", "kind", "exact"),
    [
        ([3, -4], pa.int32(), True),
        ([dt.date(1970, 1, 3)], pa.date32(), True),
        ([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("us"), True),
        (["a"], pa.string(), False),
        ([1.5], pa.float64(), False),
        ([True], pa.bool_(), False),
    ],
)
def test_only_whole_numbers_are_their_own_number(values, kind, exact):
    assert is_exact([kind]) is exact
    assert not is_exact([kind, pa.int64()])
    numbers = key_numbers([pa.chunked_array([pa.array(values, kind)])])
    assert numbers.dtype == np.int64
    if exact:
        units = {"date32[day]": 2, "timestamp[us]": 1_000_000}
        assert numbers.tolist() == ([units[str(kind)]] if str(kind) in units else values)


def test_keys_are_compared_column_by_column_and_null_equals_nothing():
    left = pa.table({"a": ["x", "x", None], "b": [1, 2, 3]})
    right = pa.table({"c": ["x", None], "d": [1, 3]})
    at, other = np.array([0, 1, 2, 0]), np.array([0, 0, 1, 1])
    same = equal_keys(left, ("a", "b"), at, right, ("c", "d"), other)
    assert same.to_pylist() == [True, False, False, False]
