"""Ranges of states: what is combined from the rows of each range gives the same."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.algebra import Aggregates, Ranges, combined_ranges, prefixes
from upstream.operators.aggregates.approximate import approx_count_distinct
from upstream.operators.aggregates.functions import avg, count, max_, min_, stddev_pop, sum_

SCHEMA = pa.schema({"i": pa.int64(), "d": pa.decimal128(20, 2), "f": pa.float64(), "s": pa.string()})
EXACT = {"n": count(), "i": sum_("i"), "d": sum_("d"), "a": avg("i"), "m": min_("s"), "x": max_("i")}
ALL = Aggregates.of(
    {**EXACT, "c": approx_count_distinct("s", error=0.09), "f": sum_("f"), "v": stddev_pop("f")}, SCHEMA
)
VALUES = st.tuples(
    st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    st.one_of(st.none(), st.integers(-(10**19), 10**19).map(lambda each: Decimal(each).scaleb(-2))),
    st.one_of(st.none(), st.sampled_from([0.1, -3.5, 1e30, float("inf")])),
    st.sampled_from([None, "a", "ab", "b"]),
)


def lifted(rows):
    columns = list(zip(*rows, strict=True)) or [[], [], [], []]
    table = pa.table([pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    return ALL.lift(table, np.arange(len(rows)), len(rows))


@given(rows=st.lists(VALUES, max_size=20), data=st.data())
def test_each_range_is_what_its_states_combine_to(rows, data):
    ends = st.integers(0, len(rows))
    ranges = data.draw(st.lists(st.tuples(ends, ends), max_size=6))
    low = np.array([one for one, _ in ranges], dtype=np.int64)
    high = np.array([two for _, two in ranges], dtype=np.int64)
    state = lifted(rows)
    found = combined_ranges(ALL, state, low, high)
    again = {part.key: Ranges(part, columns) for part, columns in ALL.split(state)}
    for number, (begin, end) in enumerate(ranges):
        some = state.slice(begin, max(end - begin, 0))
        expected = ALL.combine(some, np.zeros(some.num_rows, dtype=np.int64), 1)
        one = found.slice(number, 1)
        for name in EXACT:
            columns = ALL.columns_of(name)
            assert one.select(columns).to_pylist() == expected.select(columns).to_pylist()
        high_and_low = ALL.columns_of("f")[1:3]
        sums = (sum(state.to_pylist()[0][name] for name in high_and_low) for state in (one, expected))
        np.testing.assert_allclose(*sums, rtol=1e-15)
    for part, columns in ALL.split(found):  # asked twice, a tree gives the same
        for _ in range(2):
            for one, other in zip(again[part.key].of(low, high), columns, strict=True):
                assert one.equals(other)


@given(rows=st.lists(VALUES, max_size=12), data=st.data())
def test_prefixes_add_up_within_each_group(rows, data):
    codes = np.sort(np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))), dtype=int))
    state = lifted(rows)
    found = prefixes(ALL, state, codes)
    for at in range(len(rows)):
        mine = state.slice(int(np.searchsorted(codes, codes[at])), 1 + at - int(np.searchsorted(codes, codes[at])))
        expected = ALL.combine(mine, np.zeros(mine.num_rows, dtype=np.int64), 1)
        assert ALL.lower(found.slice(at, 1)).column("c") == ALL.lower(expected).column("c")
        for name in ("n", "i", "d", "m", "x"):
            columns = ALL.columns_of(name)
            assert found.slice(at, 1).select(columns).to_pylist() == expected.select(columns).to_pylist()
