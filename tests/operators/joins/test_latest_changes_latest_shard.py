"""A join of newest rows against the join of both tables as they are: every order, split, move, deletion and restart."""

import copy

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.latest_joins import HOWS, LEFT, RIGHT, SHARDS, Query, expected, flat, frame, plan, updates

from upstream.conf.errors import CheckpointError, MalformedRowError, StateLimitError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.frames import from_frame, to_frame
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.latest_changes import LatestJoinShard
from upstream.operators.joins.latest_plan import LatestLimit
from upstream.operators.state.store import DictStore

KEYS = [(("v",), ("r",)), (("r",), ("w",)), (("v",), ("w",)), (("r",), ("r",)), (("v", "r"), ("w",))]
BOUNDS = st.lists(st.tuples(*2 * [st.none() | st.integers(0, 14)]), min_size=4, max_size=4)
LIVES = st.none() | st.integers(0, 5)


@pytest.mark.parametrize("keys", KEYS)
@given(st.data(), st.sampled_from(HOWS), BOUNDS, st.tuples(LIVES, LIVES), st.sampled_from([1, SHARDS]))
def test_the_table_has_the_join_of_rows_that_have_not_expired(keys, data, how, bounds, ttl, shards):
    left, right = (data.draw(updates(key)) for key in keys)
    query = Query(plan(keys[1], keys[0], how, shards, ttl=ttl))
    below = [None, None]
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.repeated(one, two, bounds=bounds[at])
        for side, (bound, life) in enumerate(zip(bounds[at], ttl, strict=True)):
            if bound is not None and life is not None:
                below[side] = max(below[side] or LOWEST, bound - life)
        assert query.table == expected(flat(left[: at + 1]), flat(right[: at + 1]), *keys, how, below)
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
