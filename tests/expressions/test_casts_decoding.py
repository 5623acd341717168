import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from upstream.expressions.casts import decoded

_PARTS = st.sampled_from([b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf0\x9f", b"\n", *map(str.encode, "aé日😀\0")])


def _one(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


@given(st.lists(st.none() | st.lists(_PARTS, max_size=4).map(b"".join), max_size=8), st.integers(0, 3))
def test_each_value_is_decoded_by_itself(values, start):
    series = pl.Series(values, dtype=pl.Binary)[start:]
    assert decoded(series).to_list() == [_one(each) for each in values[start:]]
