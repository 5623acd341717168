"""What is known of the rows after a step."""

import dataclasses
from typing import Any

from upstream.plan.nodes import Filter, Node, TimeJoin, Transform

from .building import FIXED, Spec, mapped, queue, rows, union, window


def join(**more: Any) -> Node:
    return TimeJoin(*FIXED, inputs=(rows(), rows()), specification=Spec(), keeping="rows", **more)


def test_steps_that_pass_rows_on_pass_on_that_they_are_taken_back():
    changes = join(early=True)
    assert changes.retracts
    filtered = Transform(*FIXED, inputs=(changes,), step=Filter("v > 0"))
    for step in (filtered, mapped(changes), queue(filtered), union(rows(), changes)):
        assert step.retracts


def test_results_by_time_are_not_taken_back():
    assert not join().retracts
    assert not union(rows(), join()).retracts
    changed = dataclasses.replace(join(), inputs=(rows(), join(early=True)))
    assert not changed.retracts  # whatever comes before it
    assert not window(join(early=True)).retracts
