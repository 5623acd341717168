"""What tasks leave for the driver, whatever the order in which it comes."""

import itertools

import pytest

from upstream.hosting.output import Began, OutputControl, outcome_of

LEFT = [
    (OutputControl("rows", 1, "one", 0, count=3, took_s=0.25), b"a"),
    (OutputControl("rows", 1, "one", 1, count=2, took_s=0.5), b"b"),
    (OutputControl("begun", 1, "one", whole_from=7), None),
    (OutputControl("begun", 1, "one", whole_from=9), None),
    (OutputControl("failed", 2, "two", reason="a division by zero"), None),
    (OutputControl("failed", 2, "two", reason="a cast"), None),
]


def of(left):
    return outcome_of((leaving.control(), staged) for leaving, staged in left)


def test_the_order_does_not_matter():
    for order in itertools.permutations(LEFT):
        outcome = of(order)
        assert sorted(outcome.staged.pop(1)) == [b"a", b"b"]
        assert (outcome.rows, outcome.took_s, outcome.staged) == ({1: 5}, {1: 0.75}, {})
        assert outcome.began == {1: Began(9)}
        assert outcome.failed == {2: ("two", "a cast")}


def test_what_is_never_whole_in_one_shard_is_never_whole():
    shards = [OutputControl("begun", 1, "one", whole_from=since) for since in (3, None, 5)]
    for order in itertools.permutations(shards):
        assert of((each, None) for each in order).began == {1: Began(None)}


def test_late_rows_count_for_each_query_and_shard():
    late = OutputControl("late", name="stream", count=2, queries=(1, 3))
    assert of(
        [(late, None), (late, None), (OutputControl("late", name="other", count=1, queries=(3,)), None)]
    ).late == {
        1: 4,
        3: 5,
    }


def test_queries_wait_if_they_wait_in_one_shard():
    waits = [
        OutputControl("waiting", queries=(1, 4), since=(7, 9)),
        OutputControl("waiting", queries=(2, 4), since=(8, 5)),
    ]
    for order in itertools.permutations(waits):
        assert of((each, None) for each in order).waiting == {1: 7, 2: 8, 4: 5}


def test_a_row_of_no_known_kind_is_an_error():
    with pytest.raises(ValueError, match="'waits'"):
        of([(OutputControl("waits"), None)])
