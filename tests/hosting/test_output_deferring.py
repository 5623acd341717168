import json

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from kit.hosting import Versions

from upstream.hosting.host_plan import HostPlan
from upstream.hosting.output import DeferredChanges
from upstream.hosting.results import net
from upstream.operators.relations.zsets import TIME, WEIGHT
from upstream.operators.state.store import DictStore

TABLE = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
FEED = "ISTREAM(SELECT vehicle_id, route_id FROM LATEST(buses))"
PLAN = HostPlan.of(Versions({1: {"q": (1, TABLE), "f": (2, FEED)}})(1), [0])


def changes(rows):
    return pl.DataFrame(rows, schema=["route_id", "n", TIME, WEIGHT], orient="row", schema_overrides={"n": pl.Int64()})


_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 9), st.sampled_from([-1, 1])), min_size=1
)


@given(st.lists(_ROWS, min_size=1, max_size=20))
def test_what_waits_adds_up_in_few_pages(batches):
    store = DictStore()
    deferred = DeferredChanges(store, {})
    query = PLAN.queries[1]
    for at, rows in enumerate(batches):
        deferred.put(query, changes(rows), 50 - at)
        deferred = DeferredChanges(store, json.loads(json.dumps(deferred.to_json())))
        assert len(store.values) <= 8
    expected = net(changes([row for rows in batches for row in rows]))
    waits = list(deferred.firsts) == [1]
    frames, first_us = deferred.take(query)
    assert waits == (first_us == 51 - len(batches))
    assert waits or expected.height == 0
    found = net(pl.concat(frames)).rows() if waits else []
    assert sorted(found) == sorted(expected.rows())
    assert store.values == {}
    assert not deferred.firsts


def test_what_adds_up_to_nothing_does_not_wait():
    deferred = DeferredChanges(DictStore(), {})
    for weight in (1, -1) * 4:
        deferred.put(PLAN.queries[1], changes([("a", 1, 1, weight)]), 5)
    assert not deferred.firsts


def test_of_a_feed_every_change_waits():
    store = DictStore()
    deferred = DeferredChanges(store, {})
    rows = pl.DataFrame({"vehicle_id": ["a"], "route_id": ["r"], TIME: [1], WEIGHT: [1]})
    for at in range(20):
        deferred.put(PLAN.queries[2], rows.with_columns(pl.lit(at, pl.Int64).alias(TIME)), 7)
    frames, first_us = deferred.take(PLAN.queries[2])
    assert pl.concat(frames).get_column(TIME).to_list() == list(range(20))
    assert first_us == 7


def test_queries_that_are_gone_leave_nothing():
    store = DictStore()
    deferred = DeferredChanges(store, {})
    deferred.put(PLAN.queries[1], changes([("a", 1, 1, 1)]), 5)
    deferred.keep([2])
    assert store.values == {}
    assert not deferred.firsts
    assert deferred.take(PLAN.queries[1]) == ([], None)
