"""Values as numbers that are in the same order."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.sort_keys import ordered


@given(st.lists(st.floats(allow_nan=False)))
def test_floats_are_ordered_as_numbers(values):
    codes = ordered(pa.chunked_array([pa.array(values, pa.float64())]))
    for one, code in zip(values, codes, strict=True):
        for other, other_code in zip(values, codes, strict=True):
            assert (one < other) == (code < other_code)
