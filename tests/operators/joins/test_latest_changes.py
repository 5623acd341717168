import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.latest_joins import Query, plan

from upstream.conf.errors import SchemaError
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.latest_changes import (
    ARRIVAL,
    FIRST,
    NO_ROW,
    LatestResults,
    check_key_texts,
    key_texts,
)


def changes(rows):
    return sorted((row["left_key"], row["right_key"], row[SYSTEM]["deleted"], row["a"], row["b"]) for row in rows)


def test_a_row_without_a_partner_comes_and_goes_with_the_first_and_last_one():
    joined = Query(plan(("w",), how="full", shards=1))
    assert changes(joined.batch([(1, "x", 1, 10, False)], [])) == [("1", "\\N", False, 10, None)]
    assert changes(joined.batch([], [(5, "x", 1, 20, False)])) == [
        ("1", "5", False, 10, 20), ("1", "\\N", True, None, None),
    ]  # fmt: skip
    # A second partner, and a newer row of the first one, take back nothing.
    assert changes(joined.batch([], [(6, "x", 1, 21, False)])) == [("1", "6", False, 10, 21)]
    assert changes(joined.batch([], [(5, "x", 2, 22, False)])) == [("1", "5", False, 10, 22)]
    assert changes(joined.batch([], [(5, "y", 3, 23, False)])) == [
        ("1", "5", True, None, None), ("\\N", "5", False, None, 23),
    ]  # fmt: skip
    found = joined.batch([], [(6, None, 3, 24, True)])
    assert changes(found) == [("1", "6", True, None, None), ("1", "\\N", False, 10, None)]
    assert {row[SYSTEM]["arrival"].microsecond for row in found} == {24}
    assert joined.table == {("1", "\\N"): (10, None, 1), ("\\N", "5"): (None, 23, 3)}


def test_a_full_join_of_one_key_gives_one_result_for_each_value():
    joined = Query(plan(("r",), ("r",), "full", shards=1))

    def batch(left, right):
        return [(row["r"], row["a"], row["b"], row[SYSTEM]["deleted"]) for row in joined.batch(left, right)]

    assert batch([(0, "x", 1, 10, False)], [(0, "x", 1, 20, False)]) == [("x", 10, 20, False)]
    assert batch([(0, "x", 2, 11, True)], []) == [("x", None, 20, False)]
    assert batch([(0, "x", 3, 12, False)], [(0, "x", 3, 21, True)]) == [("x", 12, None, False)]
    assert batch([(0, "x", 4, 13, True)], []) == [("x", None, None, True)]
    assert batch([(0, "x", 5, 14, False)], [(0, "x", 5, 22, False)]) == [("x", 14, 22, False)]
    assert batch([(0, "x", 6, 15, True)], [(0, "x", 6, 23, True)]) == [("x", None, None, True)]


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


LEFT = pa.table({"v": [1], "r": ["x"], "t": [5], "a": [7], ARRIVAL: [10], FIRST: [9]})
RIGHT = pa.table({"w": [2], "r": ["x"], "t": [6], "b": [8], ARRIVAL: [20], FIRST: [3]})
NUMBER = np.array([77], dtype=np.int64)


def made(how, rows, cause=None, deleted=False):
    results = LatestResults(plan(("w",), how=how), 4)
    (row,) = (results.tombstones if deleted else results.given)(rows, NUMBER, cause).to_pylist()
    system = row.pop(SYSTEM)
    assert (system["source"], system["seq"], system["deleted"]) == ("join/4", 77, deleted)
    return row, system["arrival"].microsecond, system["first_arrival"].microsecond


def test_a_pair_has_the_values_of_both_and_the_later_time_and_its_tombstone_the_key_alone():
    row, arrival, first = made("inner", (LEFT, RIGHT))
    assert row == {"r": "x", "v": 1, "t": 5, "a": 7, "w": 2, "t_right": 6, "b": 8, "join_time": 6}
    assert (arrival, first) == (20, 3)  # those of the later row
    gone, *_ = made("inner", (LEFT, RIGHT), deleted=True)
    assert {name: value for name, value in gone.items() if value is not None} == {"v": 1, "w": 2}
