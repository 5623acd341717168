"""Several streams in one query: the places of their operators, and what the checkpoint is bound to."""

from __future__ import annotations

import pytest

from upstream.conf.errors import CheckpointError, OptionError
from upstream.plan.fingerprint import check_same, fingerprint
from upstream.plan.nodes import Node
from upstream.plan.places import operators, places
from upstream.plan.together import Together

from .building import FIXED, queue, rows, window


def together(*streams: Node) -> Node:
    return Together(*FIXED, inputs=streams)


def test_operators_of_all_streams_have_different_places() -> None:
    plan = together(queue(rows()), rows(), queue(window(rows())))
    assert list(places(plan, "/cp").values()) == [
        "/cp/upstream-queue",
        "/cp/upstream-windows/0",
        "/cp/upstream-queue-1",
    ]
    assert plan.text == "3 streams in one query"
    shared = queue(rows())
    with pytest.raises(OptionError, match="two branches of the stream go through one operator"):
        places(together(shared, window(shared)), "/cp")


def test_a_checkpoint_is_bound_to_the_operators_of_all_streams() -> None:
    def found(plan: Node):
        return fingerprint(plan, places(plan, "/cp"), (), "/cp")

    before, after = together(queue(rows()), queue(rows())), together(queue(rows()), rows())
    check_same(found(before), found(together(queue(rows()), rows(), queue(rows()))))
    with pytest.raises(CheckpointError, match=r"upstream-queue-1\) is gone"):
        check_same(found(before), found(after))
    assert len(operators(before)) == 2
