"""What a checkpoint is bound to: operators by place, in stages."""

import pytest
from kit.journal import through_json

from upstream.conf.errors import CheckpointError
from upstream.plan.explain import fusable
from upstream.plan.fingerprint import check_same, fingerprint, from_json, fused_as, places, to_json
from upstream.plan.nodes import Node

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


def test_a_record_of_the_first_release_does_not_have_the_ticks():
    def first_release(plan: Node):
        return from_json(
            [[{name: part[name] for name in part if name != "paced"} for part in stage] for stage in to_json(of(plan))]
        )

    check_same(first_release(ordered(rows())), of(ordered(rows(), paced=True)))
    check_same(first_release(ordered(rows())), of(ordered(rows())))
    check_same(first_release(intake("gps")), of(intake("gps")))
    # It had none for DataFrames.
    with pytest.raises(CheckpointError, match="has idle='ets' now"):
        check_same(first_release(intake("gps")), of(intake("gps", paced=True)))


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
