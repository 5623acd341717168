from dataclasses import replace

from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.plan.nodes import GroupAggregates, TimeRange, WindowOver
from upstream.operators.relations.slice_plan import Families, sliced

from .checking import N, S, V, compiled


def plan(*aggregates, window=None):
    return GroupAggregates(WindowOver(S, window or TimeRange(8, 4)), (), aggregates)


def of(node, families=None):
    return sliced(node, compiled, [], families or Families())


def test_windows_note_their_slices():
    state = OperatorState.in_memory()
    found = of(plan(N))
    found.windows(state)
    assert state.values == {"slices": found.key}
    assert found.slices(OperatorState.in_memory()).width_us == 4


def test_what_ran_goes_on_as_it_ran():
    node = plan(N)
    key = of(node).key
    assert of(node, Families(values=lambda _: {"slices": "x-slices-2"})).key == "x-slices-2"
    assert of(node, Families(values=lambda _: {})) is None
    window = identity(node.source)
    assert of(node, Families(begun=lambda each: each == window)) is None
    assert of(node, Families(begun=lambda each: each in {window, key})).key == key


def test_a_sketch_is_of_slices_whatever_runs_beside_it():
    node = plan(replace(N, function="approx_count_distinct", arguments=(V,)))
    window = identity(node.source)
    assert of(node, Families(begun=lambda each: each == window)).key == of(node).key


def test_slices_that_were_made_are_there_for_the_next_plan():
    families = Families()
    narrow = of(plan(N, window=TimeRange(6, 4)), families)
    assert narrow.key.endswith("-2")
    assert of(plan(N), families).key == narrow.key
