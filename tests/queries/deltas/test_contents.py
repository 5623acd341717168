"""What relations contain between two steps: from the state, or computed again from the relations below."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.contents import Contents, Running
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.lowering import parts
from upstream.queries.deltas.state import State
from upstream.queries.deltas.zsets import BEGINNING, TIME, Span
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
    Copies,
    Distinct,
    Join,
    Latest,
    Order,
    Project,
    Range,
    Rows,
    SetOperation,
    Top,
    Unbounded,
    Where,
    Windowed,
)

from .checking import END, LONG, TEXT, R, S, arrivals, at, call, column, compiled, constant, evaluated, frame

K, V, J, W = column("k", TEXT), column("v"), column("j", TEXT), column("w")
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
    made, top = running(Where(Windowed(S, Unbounded()), call("gt", V, constant(0))), [(1, "a", 1, 0, False)], 5)
    contents = Contents(made, Span(5, 6, 4))
    assert contents.of(top).height == 0
    assert contents.lacks(top)


EVER, EVER_R = Windowed(S, Unbounded()), Windowed(R, Unbounded())
KEYS, OTHER_KEYS = Project(EVER, (("k", K),)), Project(EVER_R, (("j", J),))
AGGREGATES = (
    N,
    Aggregation("s", "sum", (V,), LONG),
    Aggregation("d", "count", (V,), LONG, distinct=True),
    Aggregation("m", "max", (V,), LONG),
    Aggregation("l", "collect_set", (V,), pa.list_(LONG)),
)
KEPT = {
    "groups": Aggregate(EVER, (("k", K),), AGGREGATES),
    "the whole": Aggregate(Where(EVER, call("gt", V, constant(0))), (), AGGREGATES),
    "distinct": Distinct(KEYS),
    "copies": Copies(Project(EVER, (("v", V),)), "copy"),
    "except": SetOperation(KEYS, OTHER_KEYS, "except", True),
    "intersect": SetOperation(KEYS, OTHER_KEYS, "intersect", False),
    "first": Top(EVER, (Order(V, descending=True),), 2, (K,)),
    "newest": Windowed(S, Rows(2, ("k",))),
    "inner": Join(EVER, EVER_R, "inner", ((K, J),)),
    "semi": Join(S5, EVER_R, "semi", ((K, J),), call("lt", V, W)),
    "cross": Join(EVER, EVER_R, "left", (), call("lt", V, W)),
}
PADDED = {
    **{how: Join(EVER, EVER_R, how, ((K, J),)) for how in ("left", "right", "full", "anti")},
    "not in": Join(EVER, EVER_R, "null_aware_anti", ((K, J),)),
    "not in of some": Join(EVER, EVER_R, "null_aware_anti", ((V, W), (K, J))),
}


def over(plan, what):
    """Return a relation over another one, by another operator than those that run."""
    name = plan.schema.names[0]
    first = column(name, plan.schema.field(name).type)
    match what:
        case "projected":
            return Project(plan, ((f"{name} of it", first),))
        case "counted":
            return Aggregate(plan, ((name, first),), (Aggregation("c", "count", (), LONG),))
        case "joined":
            on = column("x", first.type), {TEXT: J, LONG: W}[first.type]
            return Join(Project(plan, (("x", first),)), Windowed(R, Latest()), "left", (on,))
    return plan


@given(
    given=arrivals(),
    after=st.integers(1, 4),
    name=st.sampled_from([*KEPT, *PADDED]),
    what=st.sampled_from(["itself", "projected", "counted", "joined"]),
    restart=st.booleans(),
    collapse=st.tuples(st.booleans(), st.booleans()),
)
def test_a_query_over_a_window_without_an_end_begins_with_what_an_operator_has_kept(
    given, after, name, what, restart, collapse
):
    """The window has kept no row: what is above it has."""
    base = {**KEPT, **PADDED}[name]
    plan = over(base, what)
    whole, _ = evaluated({"q": plan}, given.steps)
    store, evaluation, found, joined = DictStore(), None, [], None
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = Evaluation(store, compiled)
            evaluation.add("base", base, collapse=collapse[0])
            evaluation.add("newest", Windowed(R, Latest()))
            if joined is not None:
                evaluation.add("q", plan, collapse=collapse[1])
        if joined is None and (number >= after or number == len(given.steps) - 1):
            evaluation.add("q", plan, collapse=collapse[1])
            joined = bound
        outcome = evaluation.step({"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}, bound)
        assert not outcome.failed
        found += [outcome.changes["q"]] if "q" in outcome.changes else []
        evaluation.save()
        if joined is None:
            continue
        if name in PADDED and evaluation.whole_from("q") is None:
            assert any(None in row[1:3] for some in given.rows.values() for row in some)
            return
        assert evaluation.whole_from("q") == BEGINNING
        for tau in [bound - 1] if collapse[1] else range(joined - 1, min(bound, END)):
            assert at(pl.concat(found), tau) == at(whole["q"], tau), tau


def test_rows_that_a_join_gives_without_a_partner_and_does_not_keep_are_missed():
    for how, side in (("left", "s"), ("anti", "s"), ("full", "r"), ("right", "r")):
        for key in ("a", None):
            evaluation = Evaluation(DictStore(), compiled)
            evaluation.add("base", PADDED[how])
            stream = {"s": S, "r": R}[side]
            evaluation.step({side: frame(stream, [(1, key, 1, 0, False)])}, 3)
            evaluation.add("q", PADDED[how])
            changes = evaluation.step({}, 4).changes["q"]
            assert changes.height == (key is not None)
            assert evaluation.whole_from("q") == (BEGINNING if key else None)


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
