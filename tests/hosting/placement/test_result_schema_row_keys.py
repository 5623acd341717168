"""Texts of what identifies a row: equal for equal values only, whatever is in them."""

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.hosting.placement.result_schema import row_keys

NASTY = st.none() | st.text(alphabet="a,\\N|[]", max_size=4)
VALUES = {
    pa.string(): NASTY,
    pa.list_(pa.string()): st.none() | st.lists(NASTY, max_size=3),
    pa.list_(pa.list_(pa.string())): st.none() | st.lists(st.none() | st.lists(NASTY, max_size=2), max_size=2),
    pa.struct({"x": pa.string(), "y": pa.list_(pa.string())}): st.none()
    | st.fixed_dictionaries({"x": NASTY, "y": st.none() | st.lists(NASTY, max_size=2)}),
    pa.float64(): st.none() | st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 0.1, 1e300]),
    pa.binary(): st.none() | st.binary(max_size=2),
    pa.int8(): st.none() | st.integers(-128, 127),
    pa.bool_(): st.none() | st.booleans(),
    pa.decimal128(12, 3): st.none() | st.sampled_from([Decimal("1.000"), Decimal("-0.001"), Decimal("0.000")]),
    pa.date32(): st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pa.timestamp("us", "UTC"): st.none()
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda each: each.replace(tzinfo=timezone.utc)),
}


@given(st.data())
def test_texts_are_equal_for_equal_rows_only(data):
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=12))
    names = [f"c{at}" for at in range(len(kinds))]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    texts = row_keys(pa.table(columns, names=names), names).to_pylist()
    for one, text in zip(rows, texts, strict=True):
        for other, its in zip(rows, texts, strict=True):
            assert (text == its) == (one == other), (one, other, text, its)


def test_the_texts_stay_as_they_are():
    table = pa.table(
        {
            "s": ["a,b", None, "\\N"],
            "l": pa.array([["x", None], [], None], pa.list_(pa.string())),
            "f": [-0.0, math.nan, 1.5],
            "b": pa.array([b"\x00\xff", b"", None], pa.binary()),
        }
    )
    assert row_keys(table, ["s", "l", "f", "b"]).to_pylist() == [
        "a\\,b,x\\,\\\\N\\,,0,00ff",
        "\\N,,nan,",
        "\\\\N,\\N,1.5,\\N",
    ]


@pytest.mark.parametrize("rows", [0, 2])
def test_without_columns_all_rows_have_one_text(rows):
    assert row_keys(pa.table({"a": pa.array([1] * rows, pa.int64())}), []).to_pylist() == [""] * rows


def test_parts_of_tables_and_slices_are_read_in_place():
    lists: Any = pa.chunked_array([pa.array([["a"], ["b", "c"], None]).slice(1), pa.array([["d"]])])
    assert row_keys(pa.table({"l": lists}), ["l"]).to_pylist() == ["b\\,c\\,", "\\N", "d\\,"]
