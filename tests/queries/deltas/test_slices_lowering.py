"""From plans to slices, and to the windows over them."""

from __future__ import annotations

from upstream.queries.deltas.lowering import identity
from upstream.queries.deltas.slices_lowering import Families, sliced
from upstream.queries.deltas.state import State
from upstream.queries.relations.nodes import Aggregate, Aggregation, Range, Windowed

from .checking import LONG, S, call, column, compiled, constant

V = column("v")
LARGE = call("gt", V, constant(1))


def plan(*aggregates, window=None):
    return Aggregate(Windowed(S, window or Range(8, 4)), (), aggregates)


def of(node, families=None):
    return sliced(node, compiled, identity, [], families or Families())


def test_aggregates_of_one_column_share_it_and_equal_ones_are_one():
    calls = [
        Aggregation("a", "sum", (V,), LONG),
        Aggregation("b", "max", (V,), LONG),
        Aggregation("c", "sum", (V,), LONG),
        Aggregation("d", "sum", (V,), LONG, where=LARGE),
        Aggregation("e", "count", (V,), LONG),
    ]
    state = State.in_memory()
    found = of(plan(*calls))
    measures = found.windows(state)._wanted.measures
    a, b, c, d, e = measures
    assert a.name == c.name
    assert a.column == b.column == c.column
    assert len({a.name, b.name, d.name, e.name}) == 4
    assert len({a.column, d.column, e.column}) == 3
    assert state.values == {"slices": found.key}
    assert found.slices(State.in_memory()).width_us == 4


def test_what_ran_goes_on_as_it_ran():
    node = plan(Aggregation("a", "count", (), LONG))
    key = of(node).key
    assert of(node, Families(values=lambda _: {"slices": "x-slices-2"})).key == "x-slices-2"
    assert of(node, Families(values=lambda _: {})) is None
    window = identity(node.source)
    assert of(node, Families(begun=lambda each: each == window)) is None
    assert of(node, Families(begun=lambda each: each in {window, key})).key == key


def test_slices_that_were_made_are_there_for_the_next_plan():
    families = Families()
    narrow = of(plan(Aggregation("a", "count", (), LONG), window=Range(6, 4)), families)
    assert narrow.key.endswith("-2")
    assert of(plan(Aggregation("a", "count", (), LONG)), families).key == narrow.key
