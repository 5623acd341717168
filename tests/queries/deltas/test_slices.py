"""Queries over sliding windows that share their slices: each is what it is alone, over its rows."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import polars as pl
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.runtime.store import CountingStore, DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.operator import Computed
from upstream.queries.deltas.slices import Slices
from upstream.queries.deltas.zsets import BEGINNING, TIME, WEIGHT
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
    Hop,
    Project,
    Range,
    Sample,
    SetOperation,
    Where,
    Windowed,
)

from .checking import (
    BOOL,
    END,
    LONG,
    TEXT,
    Arrivals,
    S,
    arrivals,
    at,
    call,
    column,
    compiled,
    constant,
    evaluated,
    frame,
    steps_of,
)

DOUBLE = pa.float64()
K, V = column("k", TEXT), column("v")
LARGE = call("gt", V, constant(1))
CALLS = (
    Aggregation("n", "count", (), LONG),
    Aggregation("v", "count", (V,), LONG),
    Aggregation("vk", "count", (V, K), LONG),
    Aggregation("c", "count_if", (LARGE,), LONG),
    Aggregation("s", "sum", (V,), LONG),
    Aggregation("l", "sum", (V,), LONG, where=LARGE),
    Aggregation("a", "avg", (V,), DOUBLE),
    Aggregation("d", "stddev_samp", (V,), DOUBLE),
    Aggregation("g", "max", (V,), LONG),
    Aggregation("m", "min", (K,), TEXT, where=LARGE),
    Aggregation("b", "bool_or", (LARGE,), BOOL),
)
WINDOWS = (Range(6, 4), Range(8, 2), Range(4, 4), Range(9, 3), Range(5, 1), Hop(6, 3), Hop(4, 4), Hop(9, 6))
BYS = ((), (("x", K),), (("y", call("mod", V, constant(2), kind=LONG)), ("x", K)))


def of(window, by, calls, form=0, stream=S):
    """Return an aggregate over a window: as it is, over a condition, over a projection, over both."""
    source = Windowed(stream, window)
    if form in {1, 3}:
        source = Where(source, LARGE)
    if form in {2, 3}:
        # The columns change names: k is the value and v the key.
        swapped = {"k": column("v", TEXT), "v": column("k")}
        source = Project(source, (("k", V), ("v", K)))
        within = lambda each: _renamed(each, swapped)  # noqa: E731
        by = tuple((name, within(each)) for name, each in by)
        calls = tuple(
            replace(
                each,
                arguments=tuple(within(argument) for argument in each.arguments),
                where=None if each.where is None else within(each.where),
            )
            for each in calls
        )
    return Aggregate(source, by, calls)


def _renamed(expression, by):
    if hasattr(expression, "name"):
        return by[expression.name]
    if hasattr(expression, "arguments"):
        return replace(expression, arguments=tuple(_renamed(each, by) for each in expression.arguments))
    return expression


@st.composite
def plans(draw):
    calls = draw(st.lists(st.sampled_from(CALLS), max_size=3, unique_by=lambda each: each.name))
    by = draw(st.sampled_from(BYS))
    return of(draw(st.sampled_from(WINDOWS)), by, tuple(calls or CALLS[:1]), draw(st.integers(0, 3)))


def plain(node):
    """Return a plan of the same meaning that slices cannot evaluate: over a window and none of its rows."""
    if isinstance(node, Windowed):
        return SetOperation(node, Where(node, call("lt", constant(1), constant(0))), "union", True)
    return replace(node, source=plain(node.source))


def families(evaluation):
    return [each.operator for each in evaluation._running.values() if isinstance(each.operator, Slices)]


@given(queries=st.lists(plans(), min_size=1, max_size=5), given=arrivals(), restart=st.booleans())
def test_queries_that_share_slices_are_what_they_are_over_rows(queries, given, restart):
    plans_ = {str(number): plan for number, plan in enumerate(queries)}
    found, store = evaluated(plans_, given.steps, restart)
    expected, _ = evaluated({name: plain(plan) for name, plan in plans_.items()}, given.steps)
    for name, plan in plans_.items():
        assert steps_of(found[name]) == steps_of(expected[name]), plan
    json.loads(store.values["head", 0])


@given(
    queries=st.lists(plans(), min_size=1, max_size=4),
    given=arrivals(),
    net=st.integers(0, 15),
    over=st.integers(0, 15),
)
def test_tables_take_the_net_change_of_each_step(queries, given, net, over):
    evaluations = Evaluation(DictStore(), compiled), Evaluation(DictStore(), compiled)
    for number, plan in enumerate(queries):
        for each, made in zip(evaluations, (plan, plain(plan)), strict=True):
            each.add(str(number), made, collapse=bool(net >> number & 1))
            if over >> number & 1:
                each.add(f"{number} above", Changes(made, "dstream"))
    for rows, bound in given.steps:
        one, two = (stepped(each, rows["s"], bound).changes for each in evaluations)
        for name, found in one.items():
            assert steps_of(found) == steps_of(two[name]), name


def stepped(evaluation, rows, bound):
    return evaluation.step({"s": frame(S, rows)}, bound)


@given(
    queries=st.lists(plans(), min_size=1, max_size=4),
    given=arrivals(20),
    schedule=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=4, max_size=4),
    restart=st.booleans(),
)
def test_queries_come_and_go_and_lack_nothing_from_the_time_on_that_they_say(queries, given, schedule, restart):
    store, evaluation, found, since, ends = DictStore(), None, {}, {}, {}
    expected, _ = evaluated({str(n): plain(plan) for n, plan in enumerate(queries)}, given.steps)
    running = set()
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = Evaluation(store, compiled)
            evaluation.add("rows", Windowed(S, Range(1)))  # so that the stream is read all the time
            for name in sorted(running):
                evaluation.add(name, queries[int(name)])
        for name, (begin, length) in zip(map(str, range(len(queries))), schedule, strict=False):
            if number == begin:
                evaluation.add(name, queries[int(name)])
                running.add(name)
            elif number == begin + length + 1 and name in running:
                evaluation.remove(name)
                running.discard(name)
                ends[name] = evaluation.low_watermark
        new = {name for name in running if name not in since}
        first = evaluation.low_watermark
        outcome = stepped(evaluation, rows["s"], bound)
        assert not outcome.failed
        outcome.changes.pop("rows")
        for name, changes in outcome.changes.items():
            found.setdefault(name, []).append(changes)
        for name in new:
            since[name] = max(evaluation.whole_from(name), -1 if first is None else first - 1)
        evaluation.save()
    for name, changes in found.items():
        for tau in range(since[name], min(END, ends.get(name, END))):
            assert at(pl.concat(changes), tau) == at(expected[name], tau), (name, tau, since, queries)


@given(
    windows=st.lists(st.sampled_from(WINDOWS), min_size=2, max_size=2),
    by=st.sampled_from(BYS),
    given=arrivals(20),
    begins=st.integers(1, 6),
    above=st.integers(1, 6),
    restart=st.booleans(),
)
def test_an_aggregate_that_is_new_and_one_that_is_not_are_of_the_same_rows(windows, by, given, begins, above, restart):
    """Also before the query is whole, and where another query starts with what it has."""
    store, evaluation = DictStore(), None
    both = of(windows[1], by, (CALLS[0], CALLS[4]))
    plans_ = {
        "old": (0, of(windows[0], by, CALLS[:1])),
        "both": (begins, both),
        "above": (begins + above, Where(both, call("gt", column("n"), constant(-1)))),
    }
    found = {name: [] for name in plans_}
    for number, (rows, bound) in enumerate(given.steps):
        starts = evaluation is None or restart
        evaluation = Evaluation(store, compiled) if starts else evaluation
        for name, (begin, plan) in plans_.items():
            if number == begin or (starts and number > begin):
                evaluation.add(name, plan)
        ones = [(time, key, 1, *more) for time, key, _, *more in rows["s"]]
        for name, changes in stepped(evaluation, ones, bound).changes.items():
            found[name].append(changes)
        evaluation.save()
    for name in ("both", "above"):
        for tau in range(END) if found[name] else ():
            for row in at(pl.concat(found[name]), tau):
                assert row[-2] == (row[-1] or 0), (name, tau, row)


@given(queries=st.lists(plans(), min_size=1, max_size=3), given=arrivals(), kept=st.booleans())
def test_a_step_that_is_run_again_gives_the_same_rows_in_the_same_order(queries, given, kept):
    """Whether the process has the slices in memory, or reads them from the state."""
    store = DictStore()
    evaluation = None
    for rows, bound in given.steps:
        found = []
        again = DictStore()
        again.values = copy.deepcopy(store.values)
        if evaluation is None or not kept:
            evaluation = Evaluation(store, compiled)
            for number, plan in enumerate(queries):
                evaluation.add(str(number), plan)
        other = Evaluation(again, compiled)
        for number, plan in enumerate(queries):
            other.add(str(number), plan)
        for each in (evaluation, other):
            found.append(stepped(each, rows["s"], bound).changes)
            each.save()
        for name, changes in found[0].items():
            assert changes.equals(found[1][name])
        assert without_token(store) == without_token(again)


def without_token(store):
    return {**store.values, ("head", 0): {**json.loads(store.values["head", 0]), "token": None}}


def rows_at(*times):
    return [(time, "a", time, number, False) for number, time in enumerate(times)]


def test_a_later_query_finds_the_slices_that_are_there():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("long", of(Range(20, 2), BYS[1], CALLS[:1]))
    stepped(evaluation, rows_at(1, 9, 10, 12), 13)
    evaluation.add("short", of(Range(4, 4), BYS[1], CALLS[:1]))
    evaluation.add("hop", of(Hop(4, 4), BYS[1], CALLS[:1]))
    evaluation.add("other", of(Range(4, 4), BYS[1], CALLS[8:9]))
    outcome = stepped(evaluation, [], 16)
    assert outcome.changes["short"].rows() == [("a", 3, 12, 1)]
    assert evaluation.whole_from("short") == BEGINNING
    assert outcome.changes["other"].height == 0  # it lacks the values
    assert evaluation.whole_from("other") == 16  # (12, 16] lacks nothing
    assert outcome.changes["hop"].height == 0
    assert evaluation.whole_from("hop") == 20  # [12, 16) lacks the row at 12
    assert len(families(evaluation)) == 2


def test_a_query_may_begin_in_a_step_in_which_no_other_has_anything_to_do():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("long", of(Range(20, 4), BYS[1], CALLS[:1]))
    stepped(evaluation, rows_at(1, 9, 10, 12, 15), 13)
    evaluation.add("short", of(Range(4, 4), BYS[1], CALLS[8:9]))
    assert stepped(evaluation, [], 13).changes["short"].height == 0  # it lacks the values
    assert evaluation.whole_from("short") == 20  # it also lacks that of the row at 15, which came before
    assert stepped(evaluation, rows_at(13, 14), 17).changes["short"].height == 0
    assert stepped(evaluation, rows_at(17), 21).changes["short"].rows() == [("a", 17, 20, 1)]


def test_a_later_query_of_a_longer_range_is_whole_when_no_dropped_slice_is_in_it():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("short", of(Range(4, 2), (), CALLS[:1]))
    stepped(evaluation, rows_at(1, 3, 5, 7, 9), 11)
    stepped(evaluation, [], 13)
    stepped(evaluation, [], 15)
    evaluation.add("long", of(Range(10, 2), (), CALLS[:1]))
    changes = stepped(evaluation, rows_at(15), 20).changes["long"]
    assert evaluation.whole_from("long") == 18
    assert at(changes, 18) == {(2,): 1}
    assert at(changes, 14) == {(1,): 1}


def test_slices_of_another_width_are_taken_if_they_fit():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("a", of(Range(8, 4), (), CALLS[:1]))
    evaluation.add("b", of(Range(12, 8), (), CALLS[4:6]))
    evaluation.add("c", of(Range(80, 4), (), CALLS[1:2]))
    assert [each.width_us for each in families(evaluation)] == [4]
    evaluation.add("d", of(Range(6, 2), (), CALLS[:1]))
    assert [each.width_us for each in families(evaluation)] == [4, 2]
    evaluation.add("e", of(Range(4, 4), BYS[1], CALLS[:1]))
    evaluation.add("f", of(Hop(4, 4), (), CALLS[:1]))
    evaluation.add("g", of(Range(4, 4), (), CALLS[:1], form=1))
    evaluation.add("h", of(Range(4, 4), (), CALLS[:1], stream=Sample(S, 50.0, 1)))
    assert [each.width_us for each in families(evaluation)] == [4, 2, 4, 4, 4, 4]
    evaluation.remove("d")
    assert len(families(evaluation)) == 5


def test_a_query_stays_with_the_slices_that_it_began_with():
    """Also when a process that comes later sees others that fit, and the queries in another order."""
    store = DictStore()
    queries = {
        "a": of(Range(20, 20), (), CALLS[:1]),
        "b": of(Range(30, 30), (), CALLS[:1]),
        "c": of(Range(60, 60), (), CALLS[:1]),
    }
    evaluation = Evaluation(store, compiled)
    for name in "acb":
        evaluation.add(name, queries[name])
    stepped(evaluation, rows_at(1, 2), 3)
    evaluation.save()
    evaluation = Evaluation(store, compiled)
    for name in "cba":
        evaluation.add(name, queries[name])
    assert [each.width_us for each in families(evaluation)] == [20, 30]
    assert stepped(evaluation, [], 61).changes["c"].rows()[-1] == (2, 60, 1)


def test_a_query_starts_from_the_rows_of_its_window_if_they_are_there_and_no_slices():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("rows", Windowed(S, Range(4, 4)))
    stepped(evaluation, rows_at(1, 2), 5)
    evaluation.add("q", of(Range(4, 4), (), CALLS[:1]))
    assert stepped(evaluation, [], 6).changes["q"].rows() == [(2, 4, 1)]
    assert evaluation.whole_from("q") == BEGINNING
    assert families(evaluation) == []


def test_windows_that_do_not_slide_or_that_leave_rows_out_take_no_slices():
    for plan in (
        of(Range(4), (), CALLS[:1]),
        of(Range(2, 4), (), CALLS[:1]),
        of(Hop(4, 4), (), (Aggregation("d", "count", (V,), LONG, distinct=True),)),
        of(Hop(4, 4), (), (CALLS[0], Aggregation("d", "median", (V,), DOUBLE))),
        of(Hop(4, 4, True), (), CALLS[:1]),
    ):
        evaluation = Evaluation(DictStore(), compiled)
        evaluation.add("q", plan)
        assert families(evaluation) == []


def test_no_state_is_left_when_windows_have_passed_and_idle_steps_write_none():
    store = CountingStore(inner := DictStore())
    evaluation = Evaluation(store, compiled)
    evaluation.add("a", of(Range(8, 4), BYS[1], CALLS))
    evaluation.add("b", of(Range(16, 4), BYS[1], CALLS))
    stepped(evaluation, rows_at(1, 2, 3, 30), 5)
    assert evaluation.rows_kept == 2
    evaluation.save()
    operators, written = inner.values["operators", 0], store.written
    stepped(evaluation, [], 6)
    assert store.written == written
    evaluation.save()
    assert inner.values["operators", 0] == operators
    written = store.written
    stepped(evaluation, [], 25)
    assert evaluation.rows_kept == 2  # the last window, at 24, has the slice that ends at 12 and not the one at 4
    stepped(evaluation, [], HIGHEST)
    stepped(evaluation, [], HIGHEST)
    assert evaluation.rows_kept == 0
    assert store.written == written
    evaluation.save()
    assert {kind for kind, _ in inner.values} == {"head", "operators", "queries"}


def test_a_sum_that_overflows_ends_its_query_and_no_other():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("sum", of(Range(8, 4), (), CALLS[4:5]))
    evaluation.add("short", of(Range(4, 4), (), CALLS[4:5]))
    evaluation.add("count", of(Range(8, 4), (), CALLS[:1]))
    big = [(1, "a", 2**63 - 1, 0, False), (5, "a", 1, 1, False)]
    assert stepped(evaluation, big, 5).failed == {}
    outcome = stepped(evaluation, [], 9)
    assert list(outcome.failed) == ["sum"]
    assert outcome.changes["short"].rows() == [(2**63 - 1, 8, -1), (1, 8, 1)]
    assert stepped(evaluation, [], 13).changes["count"].rows() == [(2, 12, -1), (1, 12, 1)]


def failing(expression, schema):
    """Return what fails for values above 10, where a constant of 10 is added."""
    made = compiled(expression, schema)
    if "10" not in str(expression):
        return made

    def evaluate(rows):
        if (rows["v"] > 10).any():
            raise pl.exceptions.ComputeError("above 10")
        return made.evaluate(rows)

    return Computed(evaluate, made.columns, made.type)


def test_a_value_that_cannot_be_computed_ends_the_queries_that_want_it_and_no_other():
    ten = call("add", V, constant(10), kind=LONG)
    calls = {
        "sum": (Aggregation("s", "sum", (ten,), LONG), CALLS[0]),
        "least": (Aggregation("m", "min", (V,), LONG, where=call("gt", ten, constant(0))),),
        "count": CALLS[:2],
    }
    evaluation = Evaluation(DictStore(), failing)
    for name, each in calls.items():
        evaluation.add(name, of(Range(8, 4), BYS[1], each))
    stepped(evaluation, [(1, "a", 1, 0, False)], 2)
    outcome = stepped(evaluation, [(2, "a", 11, 1, False)], 3)
    assert set(outcome.failed) == {"sum", "least"}
    evaluation.add("sum", of(Range(8, 4), BYS[1], calls["sum"]))
    outcome = stepped(evaluation, [(3, "a", 3, 2, False)], 5)
    assert outcome.changes["count"].rows() == [("a", 3, 3, 4, 1)]
    assert outcome.changes["sum"].height == 0  # the slice lacks what came before
    assert evaluation.whole_from("sum") == 12


def test_a_condition_that_cannot_be_computed_ends_the_queries_over_it():
    evaluation = Evaluation(DictStore(), failing)
    source = Where(Windowed(S, Range(8, 4)), call("gt", call("add", V, constant(10), kind=LONG), constant(0)))
    evaluation.add("over", Aggregate(source, (), CALLS[:1]))
    evaluation.add("count", of(Range(8, 4), (), CALLS[:1]))
    outcome = stepped(evaluation, [(2, "a", 11, 1, False)], 5)
    assert set(outcome.failed) == {"over"}
    assert outcome.changes["count"].rows()[-1] == (1, 4, 1)


@given(given=arrivals())
def test_changes_of_a_relation_are_sliced_like_any_stream(given):
    first = Changes(Aggregate(Windowed(S, Range(5)), (("k", K),), (Aggregation("v", "count", (), LONG),)), "istream")
    plan = of(Range(6, 2), BYS[1], CALLS[3:5], stream=first)
    found, _ = evaluated({"q": plan}, given.steps)
    expected, _ = evaluated({"q": plain(plan)}, given.steps)
    assert steps_of(found["q"]) == steps_of(expected["q"])


@example(Arrivals([({"s": [], "r": []}, 5), ({"s": [(6, None, None, 0, False)], "r": []}, HIGHEST)]))
@given(given=arrivals())
def test_a_stream_above_sees_every_change(given):
    plan = Changes(of(Range(6, 2), (), CALLS[:1]), "istream")
    found, _ = evaluated({"q": plan, "r": plan.source}, given.steps)
    expected, _ = evaluated({"q": replace(plan, source=plain(plan.source))}, given.steps)
    assert steps_of(found["q"]) == steps_of(expected["q"])
    assert found["q"].filter(pl.col(WEIGHT) < 0).height == 0
    assert found["r"].get_column(TIME).min() in {None, BEGINNING}
