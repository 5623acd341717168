"""The step that numbers rows, in a plan."""

from upstream.plan.explain import fusable
from upstream.plan.fingerprint import places
from upstream.plan.nodes import NumberRows

from .building import FIXED, Spec, ordered, rows, window


def test_it_has_a_place_and_a_stage_of_its_own():
    numbering = NumberRows(*FIXED, inputs=(ordered(rows()),), specification=Spec())
    plan = window(numbering)
    assert places(plan, "/cp")[numbering] == "/cp/upstream-numbering/0"
    assert fusable(plan) == frozenset()
    assert fusable(window(ordered(rows()))) != frozenset()
    assert numbering.text.startswith("row numbers")
    assert not plan.retracts
