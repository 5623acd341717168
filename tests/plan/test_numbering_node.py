"""The step that numbers rows, in a plan."""

from upstream.plan.fusion import fusable
from upstream.plan.numbering_node import Numbering
from upstream.plan.places import places

from .building import FIXED, Spec, ordered, rows, window


def test_it_has_a_place_and_a_stage_of_its_own():
    numbering = Numbering(*FIXED, inputs=(ordered(rows()),), specification=Spec())
    plan = window(numbering)
    assert places(plan, "/cp")[numbering] == "/cp/upstream-numbering/0"
    assert fusable(plan) == frozenset()
    assert fusable(window(ordered(rows()))) != frozenset()
    assert numbering.text.startswith("row numbers")
    assert not plan.retracts
