"""Groups whose values are kept, in buckets and without."""

import pytest
from hypothesis import given

from upstream.operators.state import key_runs

from .groups_of import DIFFERENTIAL, Query, batches, plan


@given(batches(60, 40))
def test_large_groups_in_buckets_are_no_different(given_batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_runs, "ROWS_OF_BUCKET", 2)
        query = Query(plan())
        for batch in given_batches:
            query.batch(batch)
            query.check()


def test_a_group_that_empties_keeps_no_values(monkeypatch):
    monkeypatch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
    query = Query(plan())
    query.batch([(key, "x", 1, key, "a", False) for key in range(30)])
    query.batch([(key, None, 2, None, None, True) for key in range(30)])
    assert query.table == {}
    assert query.kinds() == {"head", "keys"}


def test_values_are_kept_only_where_an_aggregate_needs_them():
    query = Query(plan(aggregates=DIFFERENTIAL))
    query.batch([(1, "x", 1, 5, "a", False)])
    assert query.kinds() == {"head", "keys", "groups"}
