import copy
import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.latest_joins import HOWS, LEFT, RIGHT, SHARDS, Query, expected, flat, frame, plan, updates

from upstream.conf.errors import CheckpointError, MalformedRowError, SchemaError, StateLimitError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.frames import from_frame, to_frame
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.band import IntervalBand, TumblingBand
from upstream.operators.joins.latest_changes import (
    NO_ROW,
    LatestJoinShard,
    LatestResults,
    check_key_texts,
    key_texts,
)
from upstream.operators.joins.latest_plan import LatestLimit
from upstream.operators.joins.versions import ARRIVAL, FIRST
from upstream.operators.state.store import DictStore


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


ONE = pa.table({"v": [1], "r": ["x"], "t": [5], "a": [7], ARRIVAL: [10], FIRST: [9]})
OTHER = pa.table({"w": [2], "r": ["x"], "t": [6], "b": [8], ARRIVAL: [20], FIRST: [3]})
NUMBER = np.array([77], dtype=np.int64)


def made(how, rows, cause=None, deleted=False):
    results = LatestResults(plan(("w",), how=how), 4)
    (row,) = (results.tombstones if deleted else results.given)(rows, NUMBER, cause).to_pylist()
    system = row.pop(SYSTEM)
    assert (system["source"], system["seq"], system["deleted"]) == ("join/4", 77, deleted)
    return row, system["arrival"].microsecond, system["first_arrival"].microsecond


def test_a_pair_has_the_values_of_both_and_the_later_time_and_its_tombstone_the_key_alone():
    row, arrival, first = made("inner", (ONE, OTHER))
    assert row == {"r": "x", "v": 1, "t": 5, "a": 7, "w": 2, "t_right": 6, "b": 8, "join_time": 6}
    assert (arrival, first) == (20, 3)  # those of the later row
    gone, *_ = made("inner", (ONE, OTHER), deleted=True)
    assert {name: value for name, value in gone.items() if value is not None} == {"v": 1, "w": 2}


KEYS = [(("v",), ("r",)), (("r",), ("w",)), (("v",), ("w",)), (("r",), ("r",)), (("v", "r"), ("w",))]
BOUNDS = st.lists(st.tuples(*2 * [st.none() | st.integers(0, 14)]), min_size=4, max_size=4)
LIVES = st.none() | st.integers(0, 5)
MEETINGS = [  # what else decides that rows meet
    ({}, None),
    ({"band": IntervalBand(2, 1)}, lambda one, two: -2 <= two[2] - one[2] <= 1),
    ({"band": TumblingBand(4)}, lambda one, two: one[2] // 4 == two[2] // 4),
    ({"condition": "l.a < r.b"}, lambda one, two: one[3] < two[3]),
    (
        {"band": IntervalBand(3, 3), "condition": "(l.a + r.b) % 3 > 0"},
        lambda one, two: abs(two[2] - one[2]) <= 3 and (one[3] + two[3]) % 3 > 0,
    ),
]


@pytest.mark.parametrize("keys", KEYS)
@given(
    st.data(), st.sampled_from(HOWS), BOUNDS, st.tuples(LIVES, LIVES), st.sampled_from([1, SHARDS]),
    st.sampled_from(MEETINGS),
)  # fmt: skip
def test_the_table_has_the_join_of_rows_that_have_not_expired(keys, data, how, bounds, ttl, shards, meeting):
    left, right = (data.draw(updates(key)) for key in keys)
    more, meets = meeting
    query = Query(plan(keys[1], keys[0], how, shards, ttl=ttl, **more))
    below = [None, None]
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.repeated(one, two, bounds=bounds[at])
        for side, (bound, life) in enumerate(zip(bounds[at], ttl, strict=True)):
            if bound is not None and life is not None:
                below[side] = max(below[side] or LOWEST, bound - life)
        assert query.table == expected(flat(left[: at + 1]), flat(right[: at + 1]), *keys, how, below, meets)
    # A key that has the join's columns needs no stage of its own.
    assert any(name[0] == "versions" for name in query.stores) <= any("r" not in key for key in keys)


def test_a_batch_writes_the_rows_that_change():
    query = Query(plan(("r",), shards=1))
    routes = [(at, f"r{at}", 1, at, False) for at in range(3000)]
    buses = [(at, f"r{at % 3000}", 1, at, False) for at in range(6000)]
    query.batch(buses, routes)
    assert len(query.table) == 6000
    assert len([1 for kind, _ in query.stores["join", 0].values if kind == "left/0"]) > 5
    before = {**query.stores["join", 0].values}
    query.batch([(17, "r2", 2, 9000, False)], [])
    after = query.stores["join", 0].values
    changed = {name: after[name] for name in after if after[name] != before.get(name)}
    assert changed.keys() == {("head", 0), ("left/1", 0)}
    assert from_frame(changed["left/1", 0]).num_rows == 2  # where it was, and where it is now


def test_rows_without_a_time_and_other_columns_are_refused():
    query = Query(plan())
    with pytest.raises(MalformedRowError, match="no time"):
        query.batch([(1, "x", None, 0, False)], [])
    query.batch([(1, "x", 1, 0, False)], [(1, "x", 1, 0, False)])
    shard = int(bucket_of([pa.array(["x"])], SHARDS)[0])
    with pytest.raises(CheckpointError, match="columns"):
        LatestJoinShard(shard, plan(left=LEFT.remove(3)), query.store("join", shard))


def test_what_arrives_later_is_newer_without_an_event_time():
    join = plan(("r",), ("r",), time=None)
    assert not join.has_time
    store = DictStore()
    shard = LatestJoinShard(0, join, store)
    result, report = shard.run(
        [to_frame(frame(LEFT, [(1, "x", 5, 1, False), (1, "x", 3, 2, False)]))],
        [to_frame(frame(RIGHT, [(1, "x", 0, 0, False)]))],
    )
    assert [row["a"] for row in result.to_pylist()] == [2]
    assert (report.left_rows, report.right_rows, report.results, report.retracted) == (2, 1, 1, 0)
    assert (report.left_kept, report.right_kept) == (1, 1)
    assert from_frame(to_frame(result)).schema.names == join.schema.names


def test_the_later_of_two_times_in_a_zone():
    kind = pa.timestamp("us", tz="UTC")
    left, right = (schema.set(2, pa.field("t", kind)) for schema in (LEFT, RIGHT))
    join = plan(("r",), ("r",), left=left, right=right)
    rows = [(1, "x", 5, 0, False), (2, "y", 3, 1, False)], [(1, "x", 4, 0, False), (2, "y", 9, 1, False)]
    frames = [[to_frame(frame(schema, some))] for schema, some in zip((left, right), rows, strict=True)]
    result, _ = LatestJoinShard(0, join, DictStore()).run(*frames)
    assert result.column("join_time").cast(pa.int64()).to_pylist() == [5, 9]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_change_arrives_with_the_row_that_causes_it(how):
    def arrival(row):
        system = row[SYSTEM]
        return system["deleted"], system["arrival"].microsecond, system["first_arrival"].microsecond

    query = Query(plan(how=how))
    (row,) = query.batch([(1, "x", 1, 10, False)], [(0, "x", 1, 20, False)])
    assert arrival(row) == (False, 20, 10)
    (row,) = query.batch([], [(0, "x", 2, 30, True)])
    assert arrival(row) == (how == "inner", 30, 15)
    (row,) = query.batch([(1, "y", 2, 40, False)], [])
    assert arrival(row) == (how == "inner", 40, 20)
    pairs = Query(plan(("w",)))
    pairs.batch([(1, "x", 1, 10, False)], [(5, "x", 1, 20, False)])
    (row,) = pairs.batch([(1, "y", 2, 30, False)], [])
    assert arrival(row) == (True, 30, 15)


@pytest.mark.parametrize("keys", [(("v",), ("r",)), (("r",), ("r",))])
def test_a_limit_of_the_state_ends_the_query_and_a_higher_one_resumes_it(keys):
    def joined(limit):
        moving = sum("r" not in key for key in keys)
        return plan(keys[1], keys[0], shards=1, limit=limit and LatestLimit(limit, 1 + SHARDS * moving))

    query = Query(joined(None))
    rows = [(at, f"r{at}", at, at, False) for at in range(2000)]
    for _ in range(3):
        query.batch(rows, rows)  # the same again: what newer rows have replaced counts only until the runs are merged
    size = sum(
        len(value) for store in query.stores.values() for (kind, _), value in store.values.items() if kind != "head"
    )
    before = copy.deepcopy(query)
    query.join = joined(size // 4)
    with pytest.raises(StateLimitError, match="state_limit"):
        query.batch(rows, rows)
    before.join = joined(4 * size)
    before.batch(rows, rows)
    assert len(before.table) == 2000
