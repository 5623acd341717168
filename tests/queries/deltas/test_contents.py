"""What relations contain between two steps: from the state, or computed again from the relations below."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.contents import Contents, Running
from upstream.queries.deltas.lowering import parts
from upstream.queries.deltas.state import State
from upstream.queries.deltas.zsets import BEGINNING, TIME, Span
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
    Distinct,
    Latest,
    Project,
    Range,
    Unbounded,
    Windowed,
)

from .checking import LONG, S, arrivals, at, column, compiled, evaluated, frame

S5 = Windowed(S, Range(5))
N = Aggregation("n", "count", (), LONG)


def running(plan, rows, until):
    """Return the operators of a plan after one step."""
    made, found = {}, {}
    for part in parts(plan, compiled):
        if part.key not in made:
            state = State(DictStore(), part.key, {})
            made[part.key] = Running(part, part.make(state), state, set(), {"q"}, True, BEGINNING)
            inputs = [frame(S, rows)] if part.stream else [found[key] for key in part.inputs]
            found[part.key] = made[part.key].operator.step(inputs, Span.first(until))
    return made, list(made)[-1]


@given(given=arrivals(), until=st.integers(0, 30))
def test_contents_are_the_relation_just_before_the_step(given, until):
    rows = [row for row in given.rows["s"] if row[0] < until]
    for plan in (
        S5,
        Windowed(S, Latest()),
        Project(S5, (("v", column("v")),)),
        Aggregate(S5, (("v", column("v")),), (N,)),
    ):
        made, top = running(plan, rows, until)
        found = Contents(made, Span(until, until + 1, until - 1)).of(top)
        assert set(found[TIME]) <= {until - 1}
        whole, _ = evaluated({"q": plan}, [({"s": rows, "r": []}, until)])
        assert at(found, until) == at(whole["q"], until - 1)


def test_what_is_neither_in_the_state_nor_below_is_left_out():
    made, top = running(Windowed(S, Unbounded()), [(1, "a", 1, 0, False)], 5)
    contents = Contents(made, Span(5, 6, 4))
    assert not contents.lacks(top)  # nobody has asked for it
    assert contents.of(top).height == 0
    assert contents.lacks(top)
    made, top = running(Distinct(Windowed(S, Unbounded())), [(1, "a", 1, 0, False)], 5)
    contents = Contents(made, Span(5, 6, 4))
    assert contents.of(top).height == 0
    assert contents.lacks(top)


def test_streams_and_what_begins_in_this_step_have_none():
    made, top = running(Changes(S5, "istream"), [(1, "a", 1, 0, False)], 3)
    contents = Contents(made, Span(3, 4, 2))
    window = made[top].part.inputs[0]
    assert not contents.has(top)
    assert contents.has(window)
    contents.find(made[top].part)
    assert contents.of(window).rows() == [(1, "a", 1, 2, 1)]
    made[window].begun = False
    assert not contents.has(window)
    assert isinstance(contents.of(window), pl.DataFrame)
