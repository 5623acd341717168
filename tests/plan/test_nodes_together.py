"""Several streams in one query: the places of their operators, and what the checkpoint is bound to."""

import pytest
from kit.journal import through_json

from upstream.conf.errors import CheckpointError, OptionError
from upstream.core.feedback.checkpoint_layout import write_plan_record
from upstream.operators.compile import in_stages
from upstream.plan.fingerprint import check_same, fingerprint, from_json, places, to_json
from upstream.plan.nodes import ManyStreams, Node

from .building import FIXED, queue, rows, where, window


def together(*streams: Node) -> Node:
    return ManyStreams(*FIXED, inputs=streams)


def test_operators_of_all_streams_have_different_places():
    plan = together(queue(rows()), rows(), queue(window(rows())))
    folders = list(places(plan, "/cp").values())
    assert folders == ["/cp/upstream-queue", "/cp/upstream-windows/0", "/cp/upstream-queue-1"]
    assert "3 streams" in plan.text
    shared = queue(rows())
    with pytest.raises(OptionError, match="two branches"):
        places(together(shared, window(shared)), "/cp")


def test_an_operator_that_moves_to_another_stream_is_refused():
    """What it keeps is of the stream in which it was. Its place is the same, and Spark sees the same operators."""

    def found(plan: Node):
        return from_json(through_json(to_json(fingerprint(plan, places(plan, "/cp"), (), "/cp"))))

    with pytest.raises(CheckpointError, match="upstream-queue-1"):
        check_same(found(together(queue(rows()), queue(rows()))), found(together(queue(rows()), rows())))
    was = found(together(queue(rows()), rows()))
    check_same(was, found(together(queue(rows()), where(rows()))))
    with pytest.raises(CheckpointError, match="number '2', and had '1'"):
        check_same(was, found(together(rows(), queue(rows()))))


def test_streams_that_lose_all_operators_are_refused(tmp_path):
    def bound(plan: Node) -> object:
        record = in_stages(plan, places(plan, tmp_path), tmp_path)[1]
        if record is not None:
            write_plan_record(str(tmp_path), record)
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / "0").touch()  # Spark has journaled a batch
        return record

    none = together(rows(), rows())
    assert bound(none) is None
    assert bound(none) is None
    (tmp_path / "offsets" / "0").unlink()
    both = together(queue(rows()), rows())
    assert bound(both) is not None
    assert bound(both) is None
    with pytest.raises(CheckpointError, match="is gone"):
        bound(none)
