"""The least and greatest of overlapping ranges: as of the values one by one, in Spark's order."""

import math
from datetime import date, datetime, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.parts import RangeExtremes, ranks, sort_keys

KINDS = {
    pa.int64(): [-(2**63), 2**63 - 1, 0, 1],
    pa.int8(): [-128, 127, 0],
    pa.bool_(): [True, False],
    pa.date32(): [date(1969, 12, 31), date(2024, 2, 29)],
    pa.timestamp("us", "UTC"): [datetime(1900, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 1, tzinfo=timezone.utc)],
    pa.decimal128(18, 2): [Decimal("-1.25"), Decimal("9999999999999999.99")],
    pa.float64(): [float("-inf"), -1.5, -0.0, 0.0, float("inf"), float("nan")],
    pa.float32(): [-1.5, 0.0, float("inf"), float("nan")],
}


def key(value):
    """Order as Spark does: NaN is the greatest."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


@pytest.mark.parametrize("greatest", [False, True])
@given(kind=st.sampled_from(list(KINDS)), data=st.data())
def test_each_range_has_its_least_or_greatest(greatest, kind, data):
    values = data.draw(st.lists(st.none() | st.sampled_from(KINDS[kind]), max_size=20))
    ends = st.integers(0, len(values))
    ranges = data.draw(st.lists(st.tuples(ends, ends).map(sorted), max_size=6))
    ranges += [[0, len(values)]]
    found = RangeExtremes(pa.array(values, kind), greatest)
    some = data.draw(st.integers(0, len(ranges)))
    for part in (ranges[:some], ranges):  # what was asked before makes no difference
        low, high = (np.array([each[end] for each in part], dtype=np.int64) for end in (0, 1))
        got = found.of(low, high)
        assert got.type == kind
        for one, (begin, end) in zip(got.to_pylist(), part, strict=True):
            there = [each for each in pa.array(values, kind).to_pylist()[begin:end] if each is not None]
            want = (max if greatest else min)(there, key=key) if there else None
            assert one == want or key(one) == key(want)


def test_what_would_take_too_much_memory_does_not_fit(monkeypatch):
    monkeypatch.setattr(RangeExtremes, "MOST", 30)
    found = RangeExtremes(pa.array(range(10)), True)
    assert [longest for longest in range(11) if found.fits(longest)] == list(range(8))
    assert not RangeExtremes(pa.array(range(31)), True).fits(0)


_STRUCT = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])
_STRUCTS = st.none() | st.fixed_dictionaries(
    {
        "a": st.sampled_from([None, -0.0, 0.0, 1.5, math.inf, math.nan]),
        "b": st.none() | st.lists(st.sampled_from([None, "", "a", "ab"]), max_size=3),
    }
)


def _in_sparks_order(value):
    """Null is less than any value, NaN is the greatest number, and a prefix is less than the whole."""
    if isinstance(value, dict):
        return (1, _in_sparks_order(value["a"]), _in_sparks_order(value["b"]))
    if isinstance(value, list):
        return (1, tuple(map(_in_sparks_order, value)))
    return (0,) if value is None else (1, value != value, 0 if value != value else value)


@given(st.lists(st.lists(_STRUCTS, max_size=3), max_size=12), st.integers(0, 3))
def test_arrays_and_structs_compare_by_their_first_difference(values, start):
    keys = sort_keys(pa.array(values, pa.list_(_STRUCT))[start:]).tolist()
    expected = [_in_sparks_order(value) for value in values[start:]]
    for key, one in zip(keys, expected, strict=True):
        assert [key < other for other in keys] == [one < other for other in expected]


@given(st.lists(st.none() | st.integers(0, 4), max_size=9), st.booleans(), st.booleans())
def test_ranks_place_null_before_or_after_all_values(values, descending, nulls_first):
    found = ranks(pa.array(values, pa.int64()), descending=descending, nulls_first=nulls_first).tolist()
    by = [((value is None) != nulls_first, 0 if value is None else -value if descending else value) for value in values]
    for rank, one in zip(found, by, strict=True):
        assert [rank < other for other in found] == [one < other for other in by]
