import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.latest_joins import Query, plan

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.core.watermark.bounds import AFTER_ALL
from upstream.operators.joins.latest_plan import VERSION, LatestSide
from upstream.operators.joins.versions import ALIVE, TIME, DeletionRetention, LatestVersions
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("r",), "t", SCHEMA, ("k",), "t", retention=10)


def bounds(**feeds):
    at = pa.array(list(feeds.values()), pa.int64())
    return punctuation_rows(SCHEMA, list(feeds), 0, t=at)


def kept(*rows):
    """Rows (time, alive, version)."""
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate((TIME, ALIVE, VERSION))})


def test_a_deletion_is_forgotten_below_the_watermark_less_the_retention():
    forgetting = DeletionRetention(SIDE, {})
    forgetting.hear(bounds(one=30, other=20))
    # The bound counts from the next batch on, and the feed that is behind decides.
    assert not forgetting.over(kept((0, False, 1))).any()
    forgetting = DeletionRetention(SIDE, forgetting.to_json())
    rows = kept((9, False, 4), (10, False, 9), (9, True, 8), (8, False, 3))
    assert forgetting.over(rows).tolist() == [True, False, False, True]
    assert forgetting.forget(rows).tolist() == [True, False, False, True]
    assert forgetting.floor == DeletionRetention(SIDE, forgetting.to_json()).floor == 4
    assert not forgetting.forget(rows.slice(1, 1)).any()


def test_without_a_retention_or_a_watermark_nothing_is_forgotten():
    for side, some in ((dataclasses.replace(SIDE, retention=None), {"one": 1000}), (SIDE, {})):
        forgetting = DeletionRetention(side, {})
        forgetting.hear(bounds(**some))
        assert not DeletionRetention(side, forgetting.to_json()).over(kept((LOWEST, False, 1))).any()


def test_an_input_partition_that_has_ended_shows_no_time():
    forgetting = DeletionRetention(SIDE, {})
    assert forgetting.passed is None
    forgetting.hear(bounds(b=None))
    assert forgetting.passed is None
    assert AFTER_ALL in forgetting.to_json()["feeds"]["bounds"].values()
    forgetting.hear(bounds(a=30, c=20))
    assert forgetting.passed == 20


def test_punctuation_of_one_key_does_not_count():
    forgetting = DeletionRetention(SIDE, {})
    rows = bounds(one=1000)
    forgetting.hear(rows.set_column(0, "k", pa.array([7], pa.int64())))
    assert not DeletionRetention(SIDE, forgetting.to_json()).over(kept((0, False, 1))).any()


ROWS = st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans())
BATCHES = st.lists(st.tuples(st.lists(ROWS, max_size=6), st.integers(0, 60)), max_size=12)


@given(BATCHES, st.sampled_from([0, 3, 10]))
def test_a_key_comes_back_with_an_older_row_once_its_deletion_is_forgotten(batches, retention):
    side = dataclasses.replace(SIDE, retention=retention)
    store, saved, bound, below, seq = DictStore(), {}, None, LOWEST, 0
    newest, versions_given = {}, {}
    for rows, raised in batches:
        given_rows = [(key, key, time) for key, time, _ in rows]
        numbers = seq + np.arange(len(rows))
        seq += len(rows)
        versions = LatestVersions(store, "keys", side, saved)
        given_rows = table(SCHEMA, given_rows, seq=numbers, arrival_us=numbers, deleted=[row[2] for row in rows])
        changes = versions.changes(given_rows).to_pylist()
        versions.hear(bounds(f=raised))
        saved = versions.to_json()
        best = {}
        for key, time, gone in rows:
            if key not in best or time >= best[key][0]:
                best[key] = (time, gone)
        expected = {}
        for key, (time, gone) in best.items():
            was = newest.get(key)
            if was is not None and was[1] and was[0] < below:
                was = None
            if was is None or time >= was[0]:
                if not gone or (was is not None and not was[1]):
                    expected[key] = gone
                newest[key] = (time, gone)
        assert {row["k"]: row[SYSTEM]["deleted"] for row in changes} == expected
        for row in changes:
            assert row[VERSION] > versions_given.get(row["k"], 0)
            versions_given[row["k"]] = row[VERSION]
        bound = raised if bound is None else max(bound, raised)
        below = bound - retention


def test_what_is_forgotten_is_not_kept():
    store, saved = DictStore(), {}
    for batch in range(40):
        rows = [(key, key, batch * 20) for key in range(batch * 100, batch * 100 + 100)]
        versions = LatestVersions(store, "keys", SIDE, saved)
        for deleted in (False, True):
            versions.changes(table(SCHEMA, rows, deleted=np.full(100, deleted)))
        versions.hear(bounds(f=batch * 20))
        saved = versions.to_json()
    assert 100 <= versions.rows <= 1000
    assert sum(run[2] for run in saved["runs"]) <= 1500


@pytest.mark.parametrize("retention", [None, 5])
def test_a_retention_may_change_and_versions_go_on(retention):
    forgetting = DeletionRetention(SIDE, {})
    forgetting.hear(bounds(f=100))
    forgetting.floor = 7
    again = DeletionRetention(dataclasses.replace(SIDE, retention=retention), forgetting.to_json())
    assert again.over(kept((94, False, 1))).any() == (retention is not None)
    assert DeletionRetention(SIDE, again.to_json()).floor == 7


KEYS = [(("v",), ("r",)), (("r",), ("w",)), (("v",), ("w",)), (("r",), ("r",)), (("v", "r"), ("w",))]


@pytest.mark.parametrize("keys", KEYS)
def test_nothing_is_kept_of_rows_that_have_expired(keys):
    query = Query(plan(keys[1], keys[0], "full", ttl=(10, 10)))
    sizes = []
    for batch in range(30):
        at = batch * 100
        rows = [(at + number, f"r{at + number}", at + number, at + number, number % 7 == 0) for number in range(100)]
        query.batch(rows, rows, bounds=(at, at))
        sizes.append(sum(len(value) for store in query.stores.values() for value in store.values.values()))
    assert max(sizes[20:]) < 1.3 * max(sizes[3:10])
    for report in query.reports.values():
        assert report.left_kept <= 150
    query.batch([], [], bounds=(10_000, 10_000))
    assert query.table == {}
    assert sum(report.left_kept + report.right_kept for report in query.reports.values()) == 0
    reports = {**query.reports, **query.versions}.values()
    expired = sum(report.left_expired + report.right_expired for report in reports)
    assert expired == 2 * sum(1 for number in range(3000) if number % 100 % 7)


@pytest.mark.parametrize(("bound", "there"), [(15, True), (16, False)])
def test_a_row_expires_when_the_watermark_has_passed_its_time_and_the_ttl(bound, there):
    query = Query(plan(ttl=(10, None)))
    query.batch([(1, "x", 5, 0, False)], [(1, "x", 0, 1, False)])
    given_rows = query.batch([], [], bounds=(bound, 100))
    assert bool(query.table) == there
    assert [row[SYSTEM]["deleted"] for row in given_rows] == ([] if there else [True])
    assert all(row[SYSTEM]["arrival"].microsecond == 0 for row in given_rows)  # that of the punctuation: a second
    query.batch([(1, "x", 5, 2, False)], [])  # too late, or as new as the one there
    assert bool(query.table) == there
    query.batch([(1, "x", 6, 3, False)], [])
    assert query.table == {(1,): (3, 1, 6)}


def test_a_row_that_arrives_with_the_punctuation_that_ends_it_is_never_given():
    query = Query(plan(ttl=(10, 10)))
    assert query.batch([(1, "x", 5, 0, False)], [(1, "x", 5, 1, False)], bounds=(16, 16)) == []
    assert sum(each.left_expired for each in query.versions.values()) == 1


def test_a_ttl_may_come_later_change_and_go():
    def run(ttl, rows, bound):
        query.join = plan(ttl=(ttl, None))
        query.batch(rows, [(1, "x", 0, 9, False)], bounds=(bound, None))
        return sorted(key for (key,) in query.table)

    query = Query(plan())
    assert run(None, [(1, "x", 5, 0, False), (2, "x", 8, 1, False), (3, "x", 20, 2, False)], None) == [1, 2, 3]
    assert run(10, [], 16) == [2, 3]  # rows that were there before
    assert run(20, [(1, "x", 5, 3, False)], 17) == [2, 3]  # what has expired is not asked for again
    assert run(7, [], 16) == [3]
    assert run(None, [(1, "x", 1, 4, False)], 100) == [1, 3]
    assert run(10, [], 31) == []
