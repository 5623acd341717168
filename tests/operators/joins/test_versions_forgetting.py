import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
