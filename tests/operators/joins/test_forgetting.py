"""Deletions are forgotten once the watermark has passed them by the retention, and no version is given twice."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.forgetting import ALIVE, TIME, Forgetting
from upstream.operators.joins.latest_plan import VERSION, LatestSide
from upstream.operators.joins.versions import LatestVersions
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("r",), "t", SCHEMA, ("k",), "t", retention=10)


def bounds(**feeds):
    """Punctuation of some feeds."""
    at = pa.array(list(feeds.values()), pa.int64())
    return punctuation_rows(SCHEMA, list(feeds), 0, t=at)


def kept(*rows):
    """Rows (time, alive, version)."""
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate((TIME, ALIVE, VERSION))})


def test_a_deletion_is_forgotten_below_the_watermark_less_the_retention():
    forgetting = Forgetting(SIDE, {})
    forgetting.hear(bounds(one=30, other=20))
    # The bound counts from the next batch on, and the feed that is behind decides.
    assert not forgetting.over(kept((0, False, 1))).any()
    forgetting = Forgetting(SIDE, forgetting.to_json())
    rows = kept((9, False, 4), (10, False, 9), (9, True, 8), (8, False, 3))
    assert forgetting.over(rows).tolist() == [True, False, False, True]
    assert forgetting.forget(rows).tolist() == [True, False, False, True]
    assert forgetting.floor == Forgetting(SIDE, forgetting.to_json()).floor == 4
    assert not forgetting.forget(rows.slice(1, 1)).any()


def test_without_a_retention_or_a_watermark_nothing_is_forgotten():
    for side, some in ((dataclasses.replace(SIDE, retention=None), {"one": 1000}), (SIDE, {})):
        forgetting = Forgetting(side, {})
        forgetting.hear(bounds(**some))
        assert not Forgetting(side, forgetting.to_json()).over(kept((LOWEST, False, 1))).any()


def test_punctuation_of_one_key_does_not_count():
    forgetting = Forgetting(SIDE, {})
    rows = bounds(one=1000)
    forgetting.hear(rows.set_column(0, "k", pa.array([7], pa.int64())))
    assert not Forgetting(SIDE, forgetting.to_json()).over(kept((0, False, 1))).any()


@pytest.mark.parametrize(("bound", "back"), [(30, False), (31, True)])
def test_a_deletion_that_is_forgotten_and_still_kept_holds_no_row_back(bound, back):
    def run(saved, time, deleted):
        versions = LatestVersions(store, "keys", SIDE, saved)
        one = np.array([time])
        system = system_array(source="f", seq=one, arrival_us=one, deleted=np.array([deleted]))
        changes = versions.changes(pa.table([[1], [1], [time], system], schema=SCHEMA))
        versions.hear(bounds(f=bound if deleted else 0))  # the watermark passes the deletion after it is written
        return versions.to_json(), changes.num_rows

    store = DictStore()
    saved, _ = run({}, 5, False)
    saved, _ = run(saved, 20, True)
    assert run(saved, 15, False)[1] == (1 if back else 0)


ROWS = st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans())
BATCHES = st.lists(st.tuples(st.lists(ROWS, max_size=6), st.integers(0, 60)), max_size=12)


@given(BATCHES, st.sampled_from([0, 3, 10]))
def test_a_key_comes_back_with_an_older_row_once_its_deletion_is_forgotten(batches, retention):
    side = dataclasses.replace(SIDE, retention=retention)
    store, saved, bound, below, seq = DictStore(), {}, None, LOWEST, 0
    newest, versions_given = {}, {}
    for rows, raised in batches:
        columns = [pa.array([row[at] for row in rows], pa.int64()) for at in (0, 0, 1)]
        numbers = seq + np.arange(len(rows))
        seq += len(rows)
        deleted = np.array([row[2] for row in rows], dtype=np.bool_)
        system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)
        versions = LatestVersions(store, "keys", side, saved)
        changes = versions.changes(pa.table([*columns, system], schema=SCHEMA)).to_pylist()
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
        keys = np.arange(batch * 100, batch * 100 + 100)
        versions = LatestVersions(store, "keys", SIDE, saved)
        for deleted in (False, True):
            system = system_array(source="f", seq=keys, arrival_us=keys, deleted=np.full(100, deleted))
            table = pa.table([keys, keys, np.full(100, batch * 20)], schema=SCHEMA.remove(3))
            versions.changes(table.append_column(SCHEMA.field(3), system))
        versions.hear(bounds(f=batch * 20))
        saved = versions.to_json()
    assert 100 <= versions.rows <= 1000
    assert sum(run[2] for run in saved["runs"]) <= 1500


@pytest.mark.parametrize("retention", [None, 5])
def test_a_retention_may_change_and_versions_go_on(retention):
    forgetting = Forgetting(SIDE, {})
    forgetting.hear(bounds(f=100))
    forgetting.floor = 7
    again = Forgetting(dataclasses.replace(SIDE, retention=retention), forgetting.to_json())
    assert again.over(kept((94, False, 1))).any() == (retention is not None)
    assert Forgetting(SIDE, again.to_json()).floor == 7
