"""Aggregates of newest rows against the newest rows themselves, by group: every order, split, move and deletion."""

import pytest
from hypothesis import given

from .groups_of import DIFFERENTIAL, Query, batches, plan


@pytest.mark.parametrize("asked", [plan(), plan(aggregates=DIFFERENTIAL)], ids=["all", "differential"])
@given(batches(4, 8))
def test_after_each_batch_the_groups_are_those_of_the_newest_rows(asked, given_batches):
    query = Query(asked)
    for batch in given_batches:
        query.batch(batch)
        query.check()


@given(batches(3, 7, groups=("x", "y")))
def test_a_key_that_has_the_group_needs_no_stage_of_its_own(given_batches):
    query = Query(plan(("k", "g"), DIFFERENTIAL))
    for batch in given_batches:
        query.batch(batch)
        query.check()
    assert not any(name[0] == "versions" for name in query.stores)


def test_a_row_without_news_changes_no_group_and_one_without_a_group_is_counted():
    query = Query(plan(aggregates=DIFFERENTIAL))
    query.batch([(1, "x", 1, 5, "a", False)])
    assert query.batch([(1, "x", 2, 5, "a", False)]) == []
    (report,) = query.batch([(2, None, 1, 5, "a", False)])
    assert report.without_key == 1
    assert query.table == {"x": {"n": 1, "total": 5, "mean": 5.0}}
