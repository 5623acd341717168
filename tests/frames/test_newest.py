"""Newest per key against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.frames.newest import NewestPerKey, key_codes, newest_per_key

rows = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.integers(-5, 5)), max_size=60)


def newest_by_loop(keys: list[object], times: list[int] | None) -> dict[object, int]:
    best: dict[object, int] = {}
    for position, key in enumerate(keys):
        if key not in best or times is None or times[position] >= times[best[key]]:
            best[key] = position
    return best


@given(rows)
def test_newest_row_of_each_key_is_the_one_a_loop_finds(data: list[tuple[int, str, int]]) -> None:
    numbers, texts, times = ([row[i] for row in data] for i in range(3))
    codes, size = key_codes([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())])
    for time in (None, times):
        chosen = newest_per_key(codes, size, None if time is None else np.array(time, dtype=np.int64))
        keys = list(zip(numbers, texts, strict=True))
        assert sorted(newest_by_loop(keys, time).values()) == chosen.tolist()


@given(rows)
def test_a_kept_row_stands_for_all_rows_of_its_key(data: list[tuple[int, str, int]]) -> None:
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
    ],
)
def test_codes_are_equal_exactly_for_equal_keys(values: list[object], dtype: pa.DataType | None) -> None:
    codes, size = key_codes([pa.chunked_array([pa.array(values[:1], dtype), pa.array(values[1:], dtype)])])
    plain = ["nan" if isinstance(value, float) and math.isnan(value) else repr(value) for value in values]
    assert codes.max() < size
    for i, left in enumerate(plain):
        for j, right in enumerate(plain):
            assert (codes[i] == codes[j]) == (left == right)


def test_negative_zero_and_zero_are_one_key() -> None:
    codes, _ = key_codes([pa.array([0.0, -0.0])])
    assert codes[0] == codes[1]


def test_many_key_columns_of_large_range_do_not_overflow() -> None:
    generator = np.random.default_rng(1)
    columns = [pa.array(generator.integers(-(2**62), 2**62, 500)) for _ in range(6)]
    columns.append(pa.array(np.arange(500) % 250))
    columns = [pa.concat_arrays([column, column]) for column in columns]
    codes, _ = key_codes(columns)
    assert len(np.unique(codes)) == 500
    assert (codes[:500] == codes[500:]).all()
