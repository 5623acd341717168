"""What a checkpoint is bound to: operators by place, in stages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.conf.errors import CheckpointError, OptionError
from upstream.plan.explain import fusable
from upstream.plan.fingerprint import (
    check_same,
    fingerprint,
    from_json,
    fused_as,
    needs_checkpoint,
    number_along,
    operators,
    places,
    to_json,
)
from upstream.plan.nodes import Node, walk

from .building import Spec, intake, mapped, ordered, queue, rows, union, where, window


def of(plan: Node, fused=None, checkpoint: str = "/cp"):
    able = fusable(plan) if fused is None else fused
    return fingerprint(plan, places(plan, checkpoint), able, checkpoint)


def test_places_do_not_go_by_where_the_checkpoint_lies():
    """A checkpoint may be moved, or copied."""
    plan = window(window(rows()))
    assert of(plan, checkpoint="/cp/") == of(plan, checkpoint="s3a://bucket/else")
    assert [[part.place for part in stage] for stage in of(plan)] == [["upstream-windows/0", "upstream-windows/1"]]


def test_a_fingerprint_survives_json():
    found = of(queue(window(window(rows()))))
    assert from_json(through_json(to_json(found))) == found
    assert [len(stage) for stage in found] == [2, 1]


def test_what_is_free_to_change():
    was = of(window(window(rows())))
    check_same(was, of(window(mapped(window(where(rows()))))))
    check_same(was, of(window(window(rows(), specification=Spec(policy="linecutting")))))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (window(rows()), r"upstream-windows/1\) is gone"),
        (queue(window(window(rows()))), r"upstream-queue\) is new"),
        (window(window(rows(), specification=Spec("y"))), r"windows/0\) has name 'y', and had 'x'"),
        (ordered(window(rows(), specification=Spec("y"))), "is gone.*is new.*had 'x'"),
        (window(where(window(rows()))), "what Spark computes between two operators parts them"),
    ],
)
def test_a_changed_job_is_refused(now, words):
    with pytest.raises(CheckpointError, match=words):
        check_same(of(window(window(rows()))), of(now))


@pytest.mark.parametrize(
    ("plain", "paced", "words"),
    [
        (ordered(rows()), ordered(rows(), paced=True), "ordered .* flush='slow'"),
        (intake("gps"), intake("gps", paced=True), "input 'gps' .* idle='ets'"),
    ],
)
def test_an_input_of_ticks_neither_comes_nor_goes(plain, paced, words):
    """Spark finds a query's inputs by their numbers: with one more or less it reads another one's offsets, or none."""
    for was, now in ((plain, paced), (paced, plain)):
        check_same(of(was), of(was))
        with pytest.raises(CheckpointError, match=words):
            check_same(from_json(through_json(to_json(of(was)))), of(now))


def test_an_operator_of_another_kind_in_the_same_place():
    with pytest.raises(CheckpointError, match=r"ordered \(upstream-reorder/0\) is now union"):
        check_same(of(ordered(rows())), of(union(rows(), rows())))


def test_another_order_is_refused():
    """Each finds its folder, and Spark would give each the other's state."""
    with pytest.raises(CheckpointError, match="the order is"):
        check_same(of(window(ordered(rows()))), of(ordered(window(rows()))))


def test_a_job_goes_on_in_the_stages_that_it_had():
    plan = window(mapped(window(rows())))
    apart, together = of(plan, fused=()), of(plan)
    assert fused_as(plan, apart, fusable(plan)) == set()
    assert fused_as(plan, together, fusable(plan)) == {plan}
    parted = window(where(window(rows())))
    assert fused_as(parted, together, fusable(parted)) == set()


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
    assert not needs_checkpoint(where(rows()))
    with pytest.raises(OptionError, match="checkpoint="):
        places(plan, None)


def test_two_inputs_of_one_name_are_refused():
    assert folders(union(intake("a"), intake("b"))) == [
        "/cp/upstream-feeds/a",
        "/cp/upstream-feeds/b",
        "/cp/upstream-reorder/0",
    ]
    with pytest.raises(OptionError, match="two inputs"):
        places(union(intake("a"), intake("a")), "/cp")
