"""Where operators report: one number after the other along the stream, and never two in one folder."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.plan.fingerprint import check_late_locations, needs_checkpoint, number_along, operators, places
from upstream.plan.nodes import Node, walk

from .building import intake, ordered, queue, rows, union, where, window


def folders(plan: Node, checkpoint: str | None = "/cp") -> list[str]:
    return list(places(plan, checkpoint).values())


def test_operators_of_a_kind_are_numbered_along_the_stream():
    plan = queue(where(window(ordered(window(where(ordered(rows())))))))
    assert folders(plan) == [
        "/cp/upstream-reorder/0",
        "/cp/upstream-windows/0",
        "/cp/upstream-reorder/1",
        "/cp/upstream-windows/1",
        "/cp/upstream-queue",
    ]
    assert folders(queue(queue(rows()))) == ["/cp/upstream-queue", "/cp/upstream-queue-1"]


def test_two_branches_take_different_folders():
    """As before branches could share a checkpoint: the numbers go by the longest way."""
    left, right = window(rows()), window(window(rows()))
    plan = window(union(left, right))
    found = places(plan, "/cp")
    places_found = [folder.rpartition("-")[2] for folder in found.values()]
    assert places_found == ["windows/0", "windows/1", "windows/2", "reorder/0", "windows/3"]
    assert number_along(plan, "windows") == 3


def test_branches_with_places_of_their_own_keep_their_numbers():
    """A job of the release before gave each branch a folder below the checkpoint, and finds its state."""
    plan = window(
        union(window(rows(), checkpoint="/cp/left"), window(rows(), checkpoint="/cp/right"), checkpoint="/cp"),
        checkpoint="/cp",
    )
    expected = [
        "/cp/left/upstream-windows/0",
        "/cp/right/upstream-windows/0",
        "/cp/upstream-reorder/0",
        "/cp/upstream-windows/1",
    ]
    assert folders(plan, None) == expected
    assert folders(plan, "/other") == expected


def test_an_operator_in_both_branches_is_refused():
    shared = window(rows())
    plan = union(where(shared), shared)
    assert len(list(walk(plan))) == 4
    with pytest.raises(OptionError, match="two branches"):
        places(plan, "/cp")
    below = where(rows())
    assert folders(union(where(below), window(below))) == ["/cp/upstream-windows/0", "/cp/upstream-reorder/0"]


@given(st.recursive(st.just(()), lambda inner: st.lists(inner, min_size=1, max_size=2), max_leaves=8), st.randoms())
def test_no_two_operators_share_a_folder(shape, chance):
    def made(part: Any) -> Node:
        if not part:
            return rows()
        before = [made(each) for each in part]
        if len(before) == 2:
            return union(*before)
        return chance.choice((window, queue, ordered, where))(before[0])

    plan = made(shape)
    found = folders(plan)
    assert len(set(found)) == len(found) == len(operators(plan))
    for kind in ("upstream-windows/", "upstream-reorder/"):
        numbers = sorted(int(each.rpartition("/")[2]) for each in found if kind in each)
        assert numbers == list(range(len(numbers))), "readers of reports stop at the first number that is not there"


def test_a_checkpoint_that_is_not_known_is_asked_for():
    plan = where(window(rows()))
    assert needs_checkpoint(plan)
    assert not needs_checkpoint(window(rows(), checkpoint="/cp"))
    assert not needs_checkpoint(where(rows()))
    with pytest.raises(OptionError, match="checkpointLocation"):
        places(plan, None)


def test_two_inputs_of_one_name_are_refused():
    assert folders(union(intake("a"), intake("b"))) == [
        "/cp/upstream-feeds/a",
        "/cp/upstream-feeds/b",
        "/cp/upstream-reorder/0",
    ]
    with pytest.raises(OptionError, match="two inputs"):
        places(union(intake("a"), intake("a")), "/cp")


@pytest.mark.parametrize(
    ("refused", "allowed"),
    [
        (
            lambda: window(window(rows(), late_location="/late"), late_location="/late/"),
            lambda: window(ordered(rows(), late_location="/late"), late_location="/late"),
        ),
        (
            lambda: ordered(ordered(rows(), late_location="/late"), late_location="/late"),
            lambda: ordered(ordered(rows(), late_location="/one"), late_location="/two"),
        ),
    ],
    ids=["windows", "ordered"],
)
def test_late_rows_of_two_operators_of_one_kind_would_overwrite_each_other(refused, allowed):
    with pytest.raises(OptionError, match="two operators"):
        check_late_locations(refused())
    check_late_locations(allowed())
    check_late_locations(union(intake("a", late_location="/late"), intake("b", late_location="/late")))
