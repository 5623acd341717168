"""Newest per key against a plain loop."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.newest import NewestPerKey, key_codes, newest_per_key

rows = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.integers(-5, 5)), max_size=60)


def newest_by_loop(keys: list[object], times: list[int] | None) -> dict[object, int]:
    best: dict[object, int] = {}
    for position, key in enumerate(keys):
        if key not in best or times is None or times[position] >= times[best[key]]:
            best[key] = position
    return best


@given(rows)
def test_newest_row_of_each_key_is_the_one_a_loop_finds(data):
    numbers, texts, times = ([row[i] for row in data] for i in range(3))
    codes, size = key_codes([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())])
    for time in (None, times):
        chosen = newest_per_key(codes, size, None if time is None else np.array(time, dtype=np.int64))
        keys = list(zip(numbers, texts, strict=True))
        assert sorted(newest_by_loop(keys, time).values()) == chosen.tolist()


@given(rows)
def test_a_kept_row_stands_for_all_rows_of_its_key(data):
    numbers = [row[0] for row in data]
    codes, size = key_codes([pa.array(numbers, pa.int64())])
    arrivals = np.arange(len(data), dtype=np.int64)[::-1].copy()
    covered = np.arange(len(data), dtype=np.int64)
    newest = NewestPerKey(codes, size, None, arrivals, covered)
    for position, first, count in zip(newest.rows, newest.first_arrival_us, newest.covered, strict=True):
        same = [i for i, number in enumerate(numbers) if number == numbers[position]]
        assert first == min(arrivals[i] for i in same)
        assert count == sum(covered[i] for i in same)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2**62, -(2**62), 1], pa.int64()),
        (["x", "yy", "x", ""], pa.string()),
        ([b"x", b"", b"x", b"\0"], pa.binary()),
        ([True, False, True, True], pa.bool_()),
        ([1.5, float("nan"), float("nan"), -0.0], pa.float64()),
        ([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "x"}, {"a": 2, "b": "x"}], None),
        ([None, 7, None, 2**62, 8], pa.int64()),
        ([None, 7, None, 0, 8], pa.int64()),
        ([None, "x", None, ""], pa.string()),
        ([None, None], pa.float64()),
        ([{"a": None, "b": 1.5}, {"a": 0, "b": None}, {"a": None, "b": 1.5}, {"a": None, "b": None}, None, None], None),
    ],
)
def test_codes_are_equal_exactly_for_equal_keys(values, dtype):
    dtype = dtype or pa.array(values).type
    codes, size = key_codes([pa.chunked_array([pa.array(values[:1], dtype), pa.array(values[1:], dtype)])])
    plain = ["nan" if isinstance(value, float) and math.isnan(value) else repr(value) for value in values]
    assert codes.dtype == np.int64
    assert 0 <= codes.min() <= codes.max() < size
    for i, left in enumerate(plain):
        for j, right in enumerate(plain):
            assert (codes[i] == codes[j]) == (left == right)


def test_many_key_columns_of_large_range_do_not_overflow():
    generator = np.random.default_rng(1)
    columns = [pa.array(generator.integers(-(2**62), 2**62, 500)) for _ in range(6)]
    columns.append(pa.array(np.arange(500) % 250))
    columns = [pa.concat_arrays([column, column]) for column in columns]
    codes, _ = key_codes(columns)
    assert len(np.unique(codes)) == 500
    assert (codes[:500] == codes[500:]).all()


def test_nulls_take_one_code_more_and_small_ranges_of_integers_are_their_own_codes():
    codes, size = key_codes([pa.array(["x", None, "y"])])
    assert (codes.tolist(), size) == ([0, 2, 1], 3)
    codes, size = key_codes([pa.array([-5, 1018])])
    assert (codes.tolist(), size) == ([0, 1023], 1024)
    codes, size = key_codes([pa.array([-5, 1019])])
    assert (codes.tolist(), size) == ([0, 1], 2)
    codes, size = key_codes([pa.array(np.arange(257) * 4)])  # its range is 1,025, and at most four times the rows
    assert (codes.tolist(), size) == (list(range(0, 1028, 4)), 1025)
    codes, size = key_codes([pa.array([2**64 - 1, 0, 2**63], pa.uint64())])
    assert (codes.tolist(), size) == ([0, 1, 2], 3)


def test_integers_of_any_width_have_codes_of_64_bits():
    for kind in (pa.int8(), pa.int16(), pa.int64()):
        codes, size = key_codes([pa.array([-128, 127, 0], kind)])
        assert (codes.dtype, codes.tolist(), size) == (np.dtype(np.int64), [0, 255, 128], 256)


def test_codes_of_several_columns_stay_small():
    codes, size = key_codes([pa.array([0, 31]), pa.array([0, 30])])
    assert (codes.tolist(), size) == ([0, 31 * 31 + 30], 32 * 31)
    codes, size = key_codes([pa.array([0, 31]), pa.array([0, 31])])
    assert (codes.tolist(), size, codes.dtype) == ([0, 1], 2, np.dtype(np.int64))
    codes, size = key_codes([pa.array(range(400)), pa.array([0, 2] * 200)])
    assert (codes[-1], size) == (399 * 3 + 2, 1200)
    codes, size = key_codes([pa.array([0, 0, 1, 1]), pa.array([0, 1, 0, 1])])
    assert (codes.tolist(), size) == ([0, 1, 2, 3], 4)


def test_no_rows_have_no_codes():
    for column in (pa.array([], pa.int64()), pa.chunked_array([], pa.string())):
        codes, size = key_codes([column])
        assert (codes.dtype, len(codes), size) == (np.dtype(np.int64), 0, 0)
    with pytest.raises(ValueError, match="at least one column"):
        key_codes([])


def test_floats_keep_their_last_bit_and_nans_are_one_key():
    codes, size = key_codes([pa.array([1e-300, 2e-300, 1e-300])])
    assert (codes.tolist(), size) == ([0, 1, 0], 2)
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x3FF0000000000000], dtype=np.uint64).view(np.float64)
    codes, size = key_codes([pa.array(nans)])
    assert (codes.tolist(), size) == ([0, 0, 1], 2)
    codes, size = key_codes([pa.array([1.5, 2.5, 1.5], pa.float32())])
    assert (codes.tolist(), size) == ([0, 1, 0], 2)
    codes, _ = key_codes([pa.array([0.0, -0.0])])
    assert codes[0] == codes[1]


def test_what_a_kept_row_stands_for():
    codes = np.array([4, 1, 4, 1, 4], dtype=np.int64)
    time = np.array([7, 3, 9, 3, 8], dtype=np.int64)
    newest = NewestPerKey(codes, 6, time, 5, 2)
    assert newest.rows.tolist() == [2, 3]
    assert newest.first_arrival_us.tolist() == [5, 5]
    assert newest.covered.tolist() == [6, 4]
    assert {column.dtype for column in (newest.rows, newest.first_arrival_us, newest.covered)} == {np.dtype(np.int64)}


def test_times_of_both_ends_of_the_range_count():
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, np.iinfo(np.int64).min], dtype=np.int64)
    assert newest_per_key(np.array([0, 1, 0]), 2, ends).tolist() == [1, 2]
    assert NewestPerKey(np.array([0, 0, 1]), 2, None, ends, 1).first_arrival_us.tolist() == [ends[0], ends[2]]
