import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.operators.joins.latest_changes import NO_ROW, check_key_texts, key_texts

TEXTS = st.text(st.sampled_from("\\\\,aN"), max_size=4)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20))
def test_different_keys_have_different_texts(keys):
    for names in (["a"], ["a", "b"]):
        rows = pa.table({"a": [key[0] for key in keys], "b": [key[1] for key in keys]})
        texts = key_texts(rows, names).to_pylist()
        by_key = dict(zip([key[: len(names)] for key in keys], texts, strict=True))
        assert [by_key[key[: len(names)]] for key in keys] == texts
        assert len(set(by_key.values())) == len(by_key)
        assert NO_ROW not in texts


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int64(), -12, "-12"), (pa.string(), "a\\b,c", "a\\\\b,c"), (pa.bool_(), True, "true"),
        (pa.date32(), dt.date(2024, 2, 29), "2024-02-29"), (pa.float64(), -0.0, "0"),
        (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, tzinfo=dt.timezone.utc), "2024-01-02 03:00:00.000000"),
        (pa.timestamp("us"), dt.datetime(2024, 1, 2), "2024-01-02 00:00:00.000000"),
    ],
)  # fmt: skip
def test_the_text_of_a_value(kind, value, text):
    rows = pa.table({"a": pa.chunked_array([pa.array([value], kind)])})
    assert key_texts(rows, ["a"]).to_pylist() == [text]
    check_key_texts(rows.schema, ["a"], "left")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.struct([("x", pa.int64())])])
def test_keys_without_a_text_are_refused(kind):
    with pytest.raises(SchemaError, match="the right stream has k of type"):
        check_key_texts(pa.schema([("k", kind)]), ["k"], "right")
