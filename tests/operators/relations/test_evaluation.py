"""Many queries together: what they share is computed once, they come and go, and a replay gives the same."""

import copy
import re

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.conf.errors import AggregateOverflowError, OptionError, SchemaError
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.zsets import BEGINNING, WEIGHT
from upstream.operators.state.store import CountingStore, DictStore

from . import checking as c

S5, R7 = nodes.WindowOver(c.S, nodes.TimeRange(5)), nodes.WindowOver(c.R, nodes.TimeRange(7))
HOPPING = nodes.WindowOver(c.S, nodes.Hop(6, 2, columns=True))
PAIRS = nodes.Join(S5, R7, "inner", ((c.K, c.J),))
PLANS = {
    "latest": nodes.GroupAggregates(nodes.WindowOver(c.S, nodes.Latest()), (("v", c.V),), (c.N,)),
    "pairs": nodes.Where(PAIRS, c.call("lt", c.V, c.W)),
    "left": nodes.Join(S5, R7, "left", ((c.K, c.J),)),
    "newest": nodes.Top(PAIRS, (nodes.Order(c.W, descending=True),), 2, (c.K,)),
    "ranks": nodes.WindowFunctions(PAIRS, (nodes.Order(c.W),), (c.K,), c.FUNCTIONS),
    "counts": nodes.GroupAggregates(PAIRS, (("k", c.K),), (c.N, nodes.Aggregation("m", "max", (c.W,), c.LONG))),
    "all": nodes.GroupAggregates(S5, (), (c.N,)),
    "missing": nodes.SetOperation(nodes.Project(S5, (("k", c.K),)), nodes.Project(R7, (("j", c.J),)), "except", False),
    "distinct": nodes.Distinct(nodes.Project(nodes.WindowOver(c.S, nodes.RowWindow(4)), (("k", c.K),))),
    "hopping": nodes.GroupAggregates(
        HOPPING, (("e", c.column("window_end", HOPPING.schema.field("window_end").type)),), (c.N,)
    ),
    "slices": nodes.GroupAggregates(nodes.WindowOver(c.S, nodes.TimeRange(6, 2)), (("k", c.K),), (c.N,)),
    "came": nodes.Changes(nodes.GroupAggregates(S5, (("k", c.K),), (c.N,)), "istream"),
}
SUM = nodes.GroupAggregates(S5, (), (nodes.Aggregation("x", "sum", (c.V,), c.LONG),))


@given(given=c.arrivals())
def test_queries_together_are_what_each_is_alone(given):
    together, _ = c.evaluated(PLANS, given.steps)
    for name, plan in PLANS.items():
        alone, _ = c.evaluated({name: plan}, given.steps)
        assert c.steps_of(together[name]) == c.steps_of(alone[name])


def test_what_queries_have_in_common_is_computed_once():
    evaluation = c.added({"pairs": PLANS["pairs"]}, DictStore())
    assert evaluation.operators == 8
    evaluation.add("counts", PLANS["counts"])
    assert evaluation.operators == 9
    evaluation.add("again", PLANS["counts"])
    assert evaluation.operators == 9
    evaluation.remove("pairs")
    assert evaluation.operators == 8
    evaluation.remove("counts")
    assert evaluation.operators == 8
    evaluation.remove("again")
    assert evaluation.operators == 0


def test_figures_have_each_operator_with_its_queries_and_the_bytes_that_are_in_the_store():
    rows = {"s": [(1, "a", 1, 0, False), (2, "b", 2, 1, False)], "r": [(1, "a", 1, 2, False), (9, "a", 1, 3, False)]}
    _, store = c.evaluated(PLANS, [(rows, 3)])
    evaluation = c.added(PLANS, store)
    found = {each.key: each for each in evaluation.figures()}
    assert len(found) == evaluation.operators
    assert found[identity(PAIRS)].queries == {"pairs", "newest", "ranks", "counts"}
    (below,) = found[identity(PLANS["slices"])].beside
    slices = found[below]
    assert (slices.queries, slices.bytes > 0) == ({"slices"}, True)
    own = ("head", "operators", "queries")
    assert sum(each.bytes for each in found.values()) == sum(
        len(value) for (kind, _), value in store.values.items() if kind not in own
    )


def test_a_step_takes_time_where_there_is_work_and_returns_the_changes_of_watched_parts():
    evaluation = c.added({"pairs": PAIRS, "all": PLANS["all"]}, DictStore())
    one = evaluation.step(c.frames({"s": [(1, "a", 1, 0, False)], "r": []}), 3, watch=[identity(S5), "unknown"])
    assert one.watched.keys() == {identity(S5)}
    assert one.watched[identity(S5)].rows() == [(1, "a", 1, 1, 1)]
    first = {each.key: each for each in evaluation.figures()}
    assert all(each.spent_s > 0 for each in first.values())
    assert first[identity(S5)].rows == 1
    two = evaluation.step(c.frames({"s": [], "r": [(4, "a", 1, 0, False)]}), 5, watch=[identity(S5)])
    assert two.watched == {}
    second = {each.key: each for each in evaluation.figures()}
    rests = second[identity(S5)]
    assert (rests.spent_s, rests.average_s, rests.rows) == (0, first[identity(S5)].average_s, 1)
    assert second[identity(R7)].spent_s > 0


TWO_THERE = [({"s": [(1, "a", 1, 0, False), (2, "b", 2, 1, False)], "r": []}, 3), ({"s": [], "r": []}, c.END)]


@example(given=c.Arrivals(TWO_THERE), after=1, name="all", collapse=False)
@given(
    given=c.arrivals(),
    after=st.integers(0, 4),
    name=st.sampled_from([each for each in PLANS if each != "came"]),
    collapse=st.booleans(),
)
def test_a_query_that_is_added_over_what_runs_starts_from_what_is_there(given, after, name, collapse):
    """The shared parts of every plan run from the start, under another name."""
    windows = S5, R7, nodes.WindowOver(c.S, nodes.Latest()), nodes.WindowOver(c.S, nodes.RowWindow(4)), HOPPING
    base = {str(number): each for number, each in enumerate((*windows, PAIRS, PLANS["slices"]))}
    whole, _ = c.evaluated({name: PLANS[name]}, given.steps)
    store, found, joined = DictStore(), [], None
    for number, (rows, bound) in enumerate(given.steps):
        evaluation = c.added(base, store)
        if number >= min(after, len(given.steps) - 1):
            evaluation.add(name, PLANS[name], collapse=collapse)
            joined = evaluation.low_watermark if joined is None else joined
        outcome = evaluation.step(c.frames(rows), bound)
        assert not outcome.failed
        evaluation.save()
        if name in outcome.changes:
            found.append(outcome.changes[name])
            assert evaluation.complete_from(name) == BEGINNING
            first = bound - 1 if collapse else (0 if joined is None else joined) - 1
            for tau in range(first, min(bound, c.END)):
                assert c.at(pl.concat(found), tau) == c.at(whole[name], tau), (tau, joined)


def test_a_query_over_a_window_that_has_to_fill_says_when_it_is_whole():
    evaluation = c.added({"first": nodes.WindowOver(c.S, nodes.TimeRange(3))}, DictStore())
    evaluation.step(c.rows_of_s(1), 10)
    evaluation.add("range", nodes.GroupAggregates(nodes.WindowOver(c.S, nodes.TimeRange(5)), (), (c.N,)))
    evaluation.add("latest", nodes.WindowOver(c.S, nodes.Latest()))
    evaluation.add("never", nodes.WindowOver(c.S, nodes.UnboundedWindow()))
    outcome = evaluation.step(c.rows_of_s(11), 12)
    assert outcome.changes["range"].rows() == [(0, 9, 1), (0, 11, -1), (1, 11, 1)]
    assert evaluation.complete_from("first") == BEGINNING
    assert evaluation.complete_from("range") == 15
    assert evaluation.complete_from("latest") is None
    assert evaluation.complete_from("never") is None
    evaluation.add("over it", nodes.Distinct(nodes.WindowOver(c.S, nodes.UnboundedWindow())))
    evaluation.step(c.rows_of_s(), 13)
    assert evaluation.complete_from("over it") is None


def test_a_query_that_begins_with_what_nobody_has_kept_is_never_sure_to_be_whole():
    store = DictStore()
    positive = nodes.Where(nodes.WindowOver(c.S, nodes.UnboundedWindow()), c.call("gt", c.V, c.constant(0)))
    evaluation = c.added({"first": positive}, store)
    evaluation.step(c.rows_of_s(1), 10)
    evaluation.add("same", positive)
    evaluation.add("over it", nodes.Distinct(positive))
    evaluation.add("window", nodes.GroupAggregates(nodes.WindowOver(c.S, nodes.TimeRange(5)), (), (c.N,)))
    outcome = evaluation.step(c.rows_of_s(), 12)
    assert outcome.changes["same"].height == outcome.changes["over it"].height == 0
    assert evaluation.complete_from("first") == BEGINNING
    assert evaluation.complete_from("same") is None
    assert evaluation.complete_from("over it") is None
    assert evaluation.complete_from("window") == 15
    evaluation.save()
    again = c.added({"same": positive}, store)
    assert again.complete_from("same") is None
    again.remove("same")
    again.add("first", positive)
    assert again.complete_from("first") == BEGINNING


def test_a_query_that_is_removed_takes_its_state_with_it_and_leaves_the_others():
    store = DictStore()
    evaluation = c.added({"q": PLANS["all"]}, store)
    evaluation.step(c.rows_of_s(1, 2), 3)
    evaluation.save()
    kinds = {kind for kind, _ in store.values}
    evaluation.add("counts", PLANS["counts"])
    evaluation.add("latest", PLANS["latest"])
    evaluation.step(c.rows_of_s(3), 4)
    evaluation.save()
    assert {kind for kind, _ in store.values} > kinds
    evaluation.remove("latest")
    evaluation = c.added({"q": PLANS["all"]}, store)  # the process that comes next has fewer queries
    assert evaluation.step(c.rows_of_s(), 9).changes["q"].rows()[-1] == (0, 8, 1)
    evaluation.save()
    assert {kind for kind, _ in store.values} <= kinds


def test_a_query_that_comes_back_before_the_next_step_goes_on():
    evaluation = c.added({"q": PLANS["all"]}, DictStore())
    evaluation.step(c.rows_of_s(1, 2), 3)
    evaluation.remove("q")
    evaluation.add("again", PLANS["all"])
    assert evaluation.step(c.rows_of_s(), 3).changes["again"].rows() == [(2, 2, 1)]


def test_a_query_that_fails_does_not_disturb_the_others():
    evaluation = c.added({"count": PLANS["all"], "sum": SUM, "above": nodes.Distinct(SUM)}, DictStore())
    big = {"s": c.frame(c.S, [(1, "a", 2**63 - 1, 0, False), (2, "a", 1, 1, False)])}
    outcome = evaluation.step(big, 3)
    assert set(outcome.failed) == {"sum", "above"}
    assert isinstance(outcome.failed["sum"], AggregateOverflowError)
    assert outcome.changes["count"][WEIGHT].sum() == 1
    assert set(outcome.changes) == {"count"}
    assert evaluation.step({}, 9).failed == {}
    assert evaluation.queries == ["count"]


# At the times of these tests windows that slide have something to do.
QUIET = {name: plan for name, plan in PLANS.items() if name not in {"hopping", "slices"}}


def test_a_step_without_anything_to_do_writes_nothing():
    store = CountingStore(DictStore())
    evaluation = c.added(QUIET, store)
    evaluation.step({"s": c.frame(c.S, [(1, "a", 1, 1, False)]), "r": c.frame(c.R, [(1, "a", 2, 2, False)])}, 3)
    store.written = 0
    evaluation.step({}, 4)
    assert store.written == 0
    evaluation.save()
    store.written = 0
    evaluation.step({}, 4)
    evaluation.save()
    assert 0 < store.written < 200  # the low-watermark alone


@given(given=c.arrivals(), fates=st.lists(st.sampled_from(["done", "lost", "replayed", "elsewhere"]), max_size=9))
def test_an_evaluation_that_a_process_keeps_gives_what_a_new_one_over_the_same_store_gives(given, fates):
    """Batches are lost before or after they saved, run again with other rows, or run in another process."""
    store, expected, kept, ours = DictStore(), DictStore(), None, False

    def made(over):
        evaluation = c.added({name: plan for name, plan in PLANS.items() if name != "left"}, over)
        evaluation.add("left", PLANS["left"], collapse=True)
        return evaluation

    for number, (some, bound) in enumerate(given.steps):
        streams = c.frames(some)
        before, fate = copy.deepcopy(store.values), fates[number] if number < len(fates) else "done"
        if fate in {"lost", "replayed"}:  # the process runs a batch of which nothing stays
            if kept is None or not kept.rebind(store):
                kept = made(store)
            kept.step({"r": c.frame(c.R, [(min(bound, c.END) + 3, "c", 7, 99, False)])}, bound)
            if fate == "replayed":
                kept.save()
            store = DictStore()
            store.values = before
            assert not kept.rebind(store)
            ours = False
        again = kept is not None and kept.rebind(store)
        assert again == ours
        mine, fresh = kept if again and fate != "elsewhere" else made(store), made(expected)
        found, wanted = mine.step(streams, bound).changes, fresh.step(streams, bound).changes
        assert all(found[name].equals(wanted[name]) for name in PLANS)
        mine.save()
        fresh.save()
        ours = fate != "elsewhere"
        kept = mine if ours else kept
        assert _unnamed(store) == _unnamed(expected)


def _unnamed(store):
    """Return a store's values without the names of runs, which are new in each attempt."""
    values = {kind: value for kind, value in store.values.items() if kind != ("head", 0)}
    return values | {("operators", 0): re.sub(rb"[0-9a-f]{16}", b"", values[("operators", 0)])}


def test_a_kept_evaluation_takes_and_gives_up_queries():
    store, moved = DictStore(), DictStore()
    evaluation = c.added({"q": PLANS["all"]}, store)
    evaluation.step(c.rows_of_s(1), 3)
    evaluation.save()
    moved.values, store.values = store.values, {}
    assert evaluation.rebind(moved)
    evaluation.add("again", PLANS["all"])
    evaluation.add("counts", PLANS["counts"])
    evaluation.step({}, 3)
    evaluation.remove("counts")
    evaluation.save()
    assert store.values == {}
    evaluation = c.added({"again": PLANS["all"]}, moved)
    assert evaluation.step({}, 4).changes["again"].height == 0  # it was there before


@given(given=c.arrivals())
def test_an_evaluation_that_is_cleared_leaves_nothing(given):
    _, store = c.evaluated(PLANS, given.steps)
    assert store.values
    evaluation = c.added(PLANS, store)
    evaluation.clear()
    assert store.values == {}
    assert not evaluation.rebind(store)


def test_a_query_that_cannot_be_added_takes_no_state_with_it():
    store = DictStore()
    evaluation = c.added({"q": PLANS["all"]}, store)
    evaluation.step(c.rows_of_s(1, 2), 3)
    evaluation.save()
    evaluation = Evaluation(store, c.compiled)
    wrong = nodes.GroupAggregates(S5, (), (nodes.Aggregation("x", "no_such_aggregate", (c.V,), c.LONG),))
    with pytest.raises(SchemaError):
        evaluation.add("wrong", wrong)
    evaluation.add("q", PLANS["all"])
    assert evaluation.step({}, 9).changes["q"].rows() == [(2, 6, -1), (1, 6, 1), (1, 7, -1), (0, 7, 1)]


def test_state_that_nobody_needs_is_forgotten_without_a_step():
    store = DictStore()
    evaluation = c.added({"q": PLANS["all"]}, store)
    evaluation.step(c.rows_of_s(1), 3)
    evaluation.save()
    Evaluation(store, c.compiled).save()  # the process that comes next has no queries
    evaluation = c.added({"q": PLANS["all"]}, store)
    assert evaluation.step({}, 9).changes["q"].rows()[-1][:1] == (0,)
    assert not [kind for kind, _ in store.values if kind.endswith(".pending")]


def test_a_query_that_comes_to_what_runs_is_remembered_although_nothing_is_computed():
    store = DictStore()
    evaluation = c.added({"q": PLANS["all"]}, store)
    evaluation.step(c.rows_of_s(1), 3)
    evaluation.add("again", PLANS["all"])
    evaluation.save()
    assert evaluation.step({}, 3).changes["again"].height == 1
    evaluation.save()
    evaluation = Evaluation(store, c.compiled)
    evaluation.add("again", PLANS["all"])
    assert evaluation.step({}, 3).changes["again"].height == 0


def test_what_makes_no_sense_is_refused():
    evaluation = Evaluation(DictStore(), c.compiled)
    evaluation.add("q", S5)
    with pytest.raises(OptionError, match="query q"):
        evaluation.add("q", R7)
    with pytest.raises(OptionError, match="query p"):
        evaluation.remove("p")
    evaluation.step({}, 5)
    with pytest.raises(OptionError, match="from 5 to 4"):
        evaluation.step({}, 4)


RANGES = {
    how: nodes.Join(nodes.WindowOver(c.S, nodes.TimeRange(3)), R7, how, ((c.K, c.J),))
    for how in ("inner", "left", "full", "semi", "anti")
}
RANGES |= {name: PLANS[name] for name in ("newest", "counts", "missing", "hopping")}


@given(given=c.arrivals())
def test_nothing_stays_in_the_state_when_all_rows_have_left(given):
    _, store = c.evaluated(RANGES, given.steps)
    # What an evaluation notes of itself; of rows there is nothing.
    assert {kind for kind, _ in store.values} <= {"head", "operators", "queries"}


PERIODIC = nodes.Changes(nodes.WindowOver(c.R, nodes.TimeRange(7)), "rstream", 5)


@given(given=c.arrivals(), more=st.integers(0, 30))
def test_without_rows_nothing_changes_until_the_low_watermark_is_above_what_is_due(given, more):
    """A source waits for this time and for no other, so nothing may come before it, and something comes at last."""
    store = DictStore()
    for number, (rows, bound) in enumerate(given.steps[:-1]):
        evaluation = c.added({**PLANS, "periodic": PERIODIC}, store)
        evaluation.step(c.frames(rows), bound)
        evaluation.save()
        due = evaluation.due
        quiet = copy.deepcopy(store)
        until = bound + more if due is None else max(bound, min(bound + more, due))
        changed = c.added({**PLANS, "periodic": PERIODIC}, quiet).step(c.frames({"s": [], "r": []}), until).changes
        assert all(each.height == 0 for each in changed.values()), (number, due)


@pytest.mark.parametrize(("name", "last"), [("latest", 9), ("left", 14), ("hopping", 16), ("slices", 16)])
def test_a_window_is_due_while_it_has_rows_and_no_longer(name, last):
    evaluation = c.added({name: PLANS[name]}, DictStore())
    evaluation.step({**c.rows_of_s(3, 9), "r": c.frame(c.R, [])}, 4)
    found = []
    while evaluation.due is not None:
        found.append(evaluation.due)
        evaluation.step({}, evaluation.due + 1)
    assert found == sorted(set(found))
    assert found[-1] == last
