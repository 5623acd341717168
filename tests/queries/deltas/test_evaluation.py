"""Many queries together: what they share is computed once, they come and go, and a replay gives the same."""

from __future__ import annotations

import copy

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.operators.runtime.store import CountingStore, DictStore
from upstream.queries.deltas.aggregate import Aggregated
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.join import Joined
from upstream.queries.deltas.multiplicities import Multiplicities
from upstream.queries.deltas.newest import NewestWindow
from upstream.queries.deltas.stateless import Projected
from upstream.queries.deltas.streams import Source
from upstream.queries.deltas.top import TopRows
from upstream.queries.deltas.windows import TimeWindow
from upstream.queries.deltas.zsets import BEGINNING, TIME, WEIGHT
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
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

from .checking import END, LONG, TEXT, R, S, arrivals, at, call, column, compiled, constant, evaluated, frame, steps_of

K, V, J, W = column("k", TEXT), column("v"), column("j", TEXT), column("w")
N = Aggregation("n", "count", (), LONG)
S5, R7 = Windowed(S, Range(5)), Windowed(R, Range(7))
PAIRS = Join(S5, R7, "inner", ((K, J),))
PLANS = {
    "latest": Aggregate(Windowed(S, Latest()), (("v", V),), (N,)),
    "pairs": Where(PAIRS, call("lt", V, W)),
    "left": Join(S5, R7, "left", ((K, J),)),
    "newest": Top(PAIRS, (Order(W, descending=True),), 2, (K,)),
    "counts": Aggregate(PAIRS, (("k", K),), (N, Aggregation("m", "max", (W,), LONG))),
    "all": Aggregate(S5, (), (N,)),
    "missing": SetOperation(Project(S5, (("k", K),)), Project(R7, (("j", J),)), "except", False),
    "distinct": Distinct(Project(Windowed(S, Rows(4)), (("k", K),))),
    "came": Changes(Aggregate(S5, (("k", K),), (N,)), "istream"),
}


@given(given=arrivals())
def test_queries_together_are_what_each_is_alone(given):
    together, _ = evaluated(PLANS, given.steps)
    for name, plan in PLANS.items():
        alone, _ = evaluated({name: plan}, given.steps)
        assert steps_of(together[name]) == steps_of(alone[name])


@given(given=arrivals(), restarts=st.booleans())
def test_a_step_that_is_run_again_gives_the_same_rows_in_the_same_order(given, restarts):
    store = DictStore()
    for rows, bound in given.steps:
        before = copy.deepcopy(store.values)
        found = []
        for _ in range(2):
            store.values = copy.deepcopy(before)
            evaluation = Evaluation(store, compiled)
            for name, plan in PLANS.items():
                evaluation.add(name, plan)
            found.append(evaluation.step({"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}, bound).changes)
            evaluation.save()
        assert all(found[0][name].equals(found[1][name]) for name in PLANS)


def test_what_queries_have_in_common_is_computed_once():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("pairs", PLANS["pairs"])
    assert evaluation.operators == 6
    evaluation.add("counts", PLANS["counts"])
    assert evaluation.operators == 7
    evaluation.add("again", PLANS["counts"])
    assert evaluation.operators == 7
    evaluation.remove("pairs")
    assert evaluation.operators == 6
    evaluation.remove("counts")
    assert evaluation.operators == 6
    evaluation.remove("again")
    assert evaluation.operators == 0


@given(given=arrivals(), after=st.integers(0, 4), name=st.sampled_from([*PLANS]))
def test_a_query_that_is_added_over_what_runs_starts_from_what_is_there(given, after, name):
    """The shared parts of every plan run from the start, under another name."""
    base = {"a": S5, "b": R7, "c": Windowed(S, Latest()), "d": Windowed(S, Rows(4)), "e": PAIRS}
    plan = PLANS[name]
    whole, _ = evaluated({name: plan}, given.steps)
    store, found, added_at = DictStore(), [], None
    for number, (rows, bound) in enumerate(given.steps):
        evaluation = Evaluation(store, compiled)
        for other, running in base.items():
            evaluation.add(other, running)
        if number >= min(after, len(given.steps) - 1):
            evaluation.add(name, plan)
            if added_at is None:
                added_at = evaluation.low_watermark
        outcome = evaluation.step({"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}, bound)
        assert not outcome.failed
        if name in outcome.changes:
            found.append(outcome.changes[name])
            if name != "came":
                assert evaluation.whole_from(name) == BEGINNING
        evaluation.save()
    changes = pl.concat(found)
    if name == "came":  # a stream has no contents: it begins with what comes from now on, and what is there
        return
    first = -1 if added_at is None else added_at - 1
    for tau in range(first, END):
        assert at(changes, tau) == at(whole[name], tau), (tau, added_at)


def rows(*times):
    return {"s": frame(S, [(time, "a", time, time, False) for time in times])}


def test_a_query_over_a_window_that_has_to_fill_says_when_it_is_whole():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("first", Windowed(S, Range(3)))
    evaluation.step(rows(1), 10)
    evaluation.add("range", Aggregate(Windowed(S, Range(5)), (), (N,)))
    evaluation.add("latest", Windowed(S, Latest()))
    evaluation.add("never", Windowed(S, Unbounded()))
    outcome = evaluation.step(rows(11), 12)
    assert outcome.changes["range"].rows() == [(0, 9, 1), (0, 11, -1), (1, 11, 1)]
    assert evaluation.whole_from("first") == BEGINNING
    assert evaluation.whole_from("range") == 15
    assert evaluation.whole_from("latest") is None
    assert evaluation.whole_from("never") is None
    evaluation.add("over it", Distinct(Windowed(S, Unbounded())))
    evaluation.step(rows(), 13)
    assert evaluation.whole_from("over it") is None


def test_a_query_that_begins_with_what_nobody_has_kept_is_never_sure_to_be_whole():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    positive = Where(Windowed(S, Unbounded()), call("gt", V, constant(0)))
    evaluation.add("first", positive)
    evaluation.step(rows(1), 10)
    evaluation.add("same", positive)
    evaluation.add("over it", Distinct(positive))
    evaluation.add("window", Aggregate(Windowed(S, Range(5)), (), (N,)))
    outcome = evaluation.step(rows(), 12)
    assert outcome.changes["same"].height == outcome.changes["over it"].height == 0
    assert evaluation.whole_from("first") == BEGINNING
    assert evaluation.whole_from("same") is None
    assert evaluation.whole_from("over it") is None
    assert evaluation.whole_from("window") == 15
    evaluation.save()
    again = Evaluation(store, compiled)
    again.add("same", positive)
    assert again.whole_from("same") is None
    again.remove("same")
    again.add("first", positive)
    assert again.whole_from("first") == BEGINNING


def test_a_query_that_is_removed_takes_its_state_with_it_and_leaves_the_others():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1, 2), 3)
    evaluation.save()
    kinds = {kind for kind, _ in store.values}
    evaluation.add("counts", PLANS["counts"])
    evaluation.add("latest", PLANS["latest"])
    evaluation.step(rows(3), 4)
    evaluation.save()
    assert {kind for kind, _ in store.values} > kinds
    evaluation.remove("latest")
    evaluation = Evaluation(store, compiled)  # the process that comes next has fewer queries
    evaluation.add("q", PLANS["all"])
    assert evaluation.step(rows(), 9).changes["q"].rows()[-1] == (0, 8, 1)
    evaluation.save()
    assert {kind for kind, _ in store.values} <= kinds


def test_a_query_that_comes_back_before_the_next_step_goes_on():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1, 2), 3)
    evaluation.remove("q")
    evaluation.add("again", PLANS["all"])
    assert evaluation.step(rows(), 3).changes["again"].rows() == [(2, 2, 1)]


def test_a_query_that_fails_does_not_disturb_the_others():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("count", Aggregate(S5, (), (N,)))
    evaluation.add("sum", Aggregate(S5, (), (Aggregation("x", "sum", (V,), LONG),)))
    evaluation.add("above", Distinct(Aggregate(S5, (), (Aggregation("x", "sum", (V,), LONG),))))
    big = {"s": frame(S, [(1, "a", 2**63 - 1, 0, False), (2, "a", 1, 1, False)])}
    outcome = evaluation.step(big, 3)
    assert set(outcome.failed) == {"sum", "above"}
    assert outcome.changes["count"][WEIGHT].sum() == 1
    assert set(outcome.changes) == {"count"}
    assert evaluation.step({}, 9).failed == {}
    assert evaluation.queries == ["count"]


@given(given=arrivals())
def test_a_second_stage_continues_with_what_the_first_one_found(given):
    """The first stage by the streams' key in two shards, the second by the group's."""
    plan = PLANS["latest"]
    given_ = plan.source
    whole, _ = evaluated({"q": plan}, given.steps)
    shards = [Evaluation(DictStore(), compiled) for _ in range(2)]
    for shard in shards:
        shard.add("stage", given_)
    second = Evaluation(DictStore(), compiled)
    second.add("q", plan, given=[given_])
    found = []
    for rows_, bound in given.steps:
        parts = []
        for number, shard in enumerate(shards):
            mine = [row for row in rows_["s"] if (row[1] == "a") == bool(number)]
            parts.append(shard.step({"s": frame(S, mine)}, bound).changes["stage"])
        found.append(second.step({}, bound, {given_: pl.concat(parts)}).changes["q"])
    assert steps_of(pl.concat(found)) == steps_of(whole["q"])


def test_a_step_without_anything_to_do_writes_nothing():
    store = CountingStore(DictStore())
    evaluation = Evaluation(store, compiled)
    for name, plan in PLANS.items():
        evaluation.add(name, plan)
    evaluation.step({"s": frame(S, [(1, "a", 1, 1, False)]), "r": frame(R, [(1, "a", 2, 2, False)])}, 3)
    store.written = 0
    evaluation.step({}, 4)
    assert store.written == 0
    evaluation.save()
    store.written = 0
    evaluation.step({}, 4)
    evaluation.save()
    assert 0 < store.written < 200  # the low-watermark alone


def test_a_step_without_anything_to_do_asks_no_operator(monkeypatch):
    evaluation = Evaluation(DictStore(), compiled)
    for name, plan in PLANS.items():
        evaluation.add(name, plan)
    evaluation.step(rows(1), 3)
    steps = []
    for kind in (Aggregated, Joined, Multiplicities, NewestWindow, Projected, Source, TimeWindow, TopRows):
        step = kind.step
        monkeypatch.setattr(kind, "step", lambda self, *given, step=step: steps.append(self) or step(self, *given))
    assert all(changes.height == 0 for changes in evaluation.step({"s": frame(S, [])}, 6).changes.values())
    assert steps == []
    changes = evaluation.step({}, 7).changes  # the row leaves at 6
    assert changes["all"].rows() == [(1, 6, -1), (0, 6, 1)]
    assert 0 < len(steps) < evaluation.operators


@given(given=arrivals(), fates=st.lists(st.sampled_from(["done", "lost", "replayed", "elsewhere"]), max_size=9))
def test_an_evaluation_that_a_process_keeps_gives_what_a_new_one_over_the_same_store_gives(given, fates):
    """Batches are lost before or after they saved, run again with other rows, or run in another process."""
    store, expected, kept, ours = DictStore(), DictStore(), None, False

    def made(over):
        evaluation = Evaluation(over, compiled)
        for name, plan in PLANS.items():
            evaluation.add(name, plan, collapse=name == "left")
        return evaluation

    for number, (some, bound) in enumerate(given.steps):
        streams = {"s": frame(S, some["s"]), "r": frame(R, some["r"])}
        before, fate = copy.deepcopy(store.values), fates[number] if number < len(fates) else "done"
        if fate in {"lost", "replayed"}:  # the process runs a batch of which nothing stays
            if kept is None or not kept.rebind(store):
                kept = made(store)
            kept.step({"r": frame(R, [(min(bound, END) + 3, "c", 7, 99, False)])}, bound)
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
        same = {kind: value for kind, value in store.values.items() if kind != ("head", 0)}
        assert same == {kind: value for kind, value in expected.values.items() if kind != ("head", 0)}


def test_an_evaluation_that_did_not_save_is_not_used_again():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    assert not evaluation.rebind(store)
    evaluation.step(rows(1), 3)
    evaluation.save()
    assert evaluation.rebind(store)
    evaluation.step(rows(4), 5)
    assert not evaluation.rebind(store)


def test_a_kept_evaluation_takes_and_gives_up_queries():
    store, moved = DictStore(), DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1), 3)
    evaluation.save()
    moved.values, store.values = store.values, {}
    assert evaluation.rebind(moved)
    evaluation.add("again", PLANS["all"])
    evaluation.add("counts", PLANS["counts"])
    evaluation.step({}, 3)
    evaluation.remove("counts")
    evaluation.save()
    assert store.values == {}
    evaluation = Evaluation(moved, compiled)
    evaluation.add("again", PLANS["all"])
    assert evaluation.step({}, 4).changes["again"].height == 0  # it was there before


@given(given=arrivals())
def test_an_evaluation_that_is_cleared_leaves_nothing(given):
    _, store = evaluated(PLANS, given.steps)
    assert store.values
    Evaluation(store, compiled).clear()
    assert store.values == {}
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["pairs"])
    evaluation.step(rows(1, 2), 3)
    evaluation.save()
    evaluation.clear()
    assert store.values == {}
    assert not evaluation.rebind(store)


def test_a_query_that_cannot_be_added_takes_no_state_with_it():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1, 2), 3)
    evaluation.save()
    evaluation = Evaluation(store, compiled)
    wrong = Aggregate(S5, (), (Aggregation("x", "no_such_aggregate", (V,), LONG),))
    with pytest.raises(SchemaError):
        evaluation.add("wrong", wrong)
    evaluation.add("q", PLANS["all"])
    assert evaluation.step({}, 9).changes["q"].rows() == [(2, 6, -1), (1, 6, 1), (1, 7, -1), (0, 7, 1)]


def test_state_that_nobody_needs_is_forgotten_without_a_step():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1), 3)
    evaluation.save()
    Evaluation(store, compiled).save()  # the process that comes next has no queries
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    assert evaluation.step({}, 9).changes["q"].rows()[-1][:1] == (0,)
    assert not [kind for kind, _ in store.values if kind.endswith(".pending")]


def test_a_query_that_comes_to_what_runs_is_remembered_although_nothing_is_computed():
    store = DictStore()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.step(rows(1), 3)
    evaluation.add("again", PLANS["all"])
    evaluation.save()
    assert evaluation.step({}, 3).changes["again"].height == 1
    evaluation.save()
    evaluation = Evaluation(store, compiled)
    evaluation.add("again", PLANS["all"])
    assert evaluation.step({}, 3).changes["again"].height == 0


def test_what_makes_no_sense_is_refused():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", S5)
    with pytest.raises(OptionError, match="there is a query q"):
        evaluation.add("q", R7)
    with pytest.raises(OptionError, match="no query p"):
        evaluation.remove("p")
    evaluation.step({}, 5)
    with pytest.raises(OptionError, match="goes back from 5 to 4"):
        evaluation.step({}, 4)


def test_a_query_that_is_altered_starts_with_what_there_is():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", PLANS["all"])
    evaluation.add("other", S5)
    evaluation.step(rows(1, 2), 3)
    evaluation.remove("q")
    evaluation.add("q", Where(S5, call("gt", V, constant(1))))
    changes = evaluation.step(rows(), 3).changes["q"]
    assert changes.select("v", TIME, WEIGHT).rows() == [(2, 2, 1)]


def test_rows_kept_are_those_of_the_windows():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", S5)
    evaluation.step(rows(1, 2), 3)
    assert evaluation.rows_kept == 2
