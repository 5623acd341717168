"""Values as numbers that are in the same order."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.sort_keys import ordered, places, places_of_both


@given(st.lists(st.floats(allow_nan=False)))
def test_floats_are_ordered_as_numbers(values):
    codes = ordered(pa.chunked_array([pa.array(values, pa.float64())]))
    for one, code in zip(values, codes, strict=True):
        for other, other_code in zip(values, codes, strict=True):
            assert (one < other) == (code < other_code)


ROWS = st.tuples(
    st.sampled_from(["", "a", "a.10", "a.9", "é"]),
    st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    st.decimals(-1, 1, places=1),
)


@given(st.lists(ROWS, min_size=1), st.data())
def test_places_of_several_columns_are_ordered_as_tuples(rows, data):
    files, numbers, parts = zip(*rows, strict=True)
    inner = [{"n": number, "d": part} for number, part in zip(numbers, parts, strict=True)]
    kind = pa.struct([("n", pa.int64()), ("d", pa.decimal128(3, 1))])
    columns = [pa.chunked_array([pa.array(files)]), pa.chunked_array([pa.array(inner, kind)])]
    expected = [(file.encode(), number, part) for file, number, part in rows]
    some = st.lists(st.integers(0, len(rows) - 1), max_size=5).map(lambda at: np.array(at, dtype=np.int64))
    one, two = data.draw(some), data.draw(some)
    both = (places(columns),) * 2, places_of_both(columns, one, columns, two)
    for (left, at), (right, other) in (
        ((both[0][0], np.arange(len(rows))), (both[0][1], np.arange(len(rows)))),
        ((both[1][0], one), (both[1][1], two)),
    ):
        for place, here in zip(left, at, strict=True):
            for other_place, there in zip(right, other, strict=True):
                assert (expected[here] < expected[there]) == (place < other_place)
