"""Queries over sliding windows that share their slices: each is what it is alone, over its rows."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import count
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.operator import Evaluable
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.slice_plan import family_key, is_family, narrowest, shape_of, width_among
from upstream.operators.relations.slices import last_multiple, points_of, window_at
from upstream.operators.relations.slices_table import Partials, SliceTable
from upstream.operators.relations.zsets import BEGINNING, OLD, TIME, WEIGHT, Span
from upstream.operators.state.store import CountingStore, DictStore

from . import checking as c
from .checking import LARGE, LONG, TEXT, K, N, S, V, call, column, constant

DOUBLE = pa.float64()
CALLS = (
    c.N,
    nodes.Aggregation("v", "count", (c.V,), c.LONG),
    nodes.Aggregation("vk", "count", (c.V, c.K), c.LONG),
    nodes.Aggregation("c", "count", (), c.LONG, where=c.LARGE),
    nodes.Aggregation("s", "sum", (c.V,), c.LONG),
    nodes.Aggregation("l", "sum", (c.V,), c.LONG, where=c.LARGE),
    nodes.Aggregation("a", "avg", (c.V,), DOUBLE),
    nodes.Aggregation("d", "stddev_samp", (c.V,), DOUBLE),
    nodes.Aggregation("g", "max", (c.V,), c.LONG),
    nodes.Aggregation("m", "min", (c.K,), c.TEXT, where=c.LARGE),
    nodes.Aggregation("b", "max", (c.LARGE,), c.BOOL),
    nodes.Aggregation("t", "sum", (c.V,), c.LONG),  # as another one
)
RANGES, HOPS = ((6, 4), (8, 2), (4, 4), (9, 3), (5, 1)), ((6, 3), (4, 4), (9, 6))
WINDOWS = (*(nodes.TimeRange(*each) for each in RANGES), *(nodes.Hop(*each) for each in HOPS))
BYS = ((), (("x", c.K),), (("y", c.call("mod", c.V, c.constant(2), kind=c.LONG)), ("x", c.K)))


def of(window, by, calls, form=0, stream=c.S):
    """Return an aggregate over a window: as it is, over a condition, over a projection, over both."""
    source = nodes.WindowOver(stream, window)
    if form in {1, 3}:
        source = nodes.Where(source, c.LARGE)
    if form in {2, 3}:
        # The columns change names: k is the value and v the key.
        swapped = {"k": c.column("v", c.TEXT), "v": c.column("k")}
        source = nodes.Project(source, (("k", c.V), ("v", c.K)))
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
    return nodes.GroupAggregates(source, by, calls)


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
    if isinstance(node, nodes.WindowOver):
        return nodes.SetOperation(node, nodes.Where(node, c.call("lt", c.constant(1), c.constant(0))), "union", True)
    return replace(node, source=plain(node.source))


@given(queries=st.lists(plans(), min_size=1, max_size=5), given=c.arrivals())
def test_queries_that_share_slices_are_what_they_are_over_rows(queries, given):
    plans_ = {str(number): plan for number, plan in enumerate(queries)}
    found, store = c.evaluated(plans_, given.steps)
    expected, _ = c.evaluated({name: plain(plan) for name, plan in plans_.items()}, given.steps)
    for name, plan in plans_.items():
        assert c.steps_of(found[name]) == c.steps_of(expected[name]), plan
    # A process that has the slices in memory gives the same rows in the same order, and leaves the same state.
    kept, other = c.evaluated(plans_, given.steps, restart=False)
    assert all(found[name].equals(kept[name]) for name in plans_)
    assert without_token(store) == without_token(other)


def without_token(store):
    return {**store.values, ("head", 0): {**json.loads(store.values["head", 0]), "token": None}}


def stepped(evaluation, rows, bound):
    return evaluation.step({"s": c.frame(c.S, rows)}, bound)


@given(
    queries=st.lists(plans(), min_size=1, max_size=4),
    given=c.arrivals(20),
    schedule=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=4, max_size=4),
    restart=st.booleans(),
)
def test_queries_come_and_go_and_lack_nothing_from_the_time_on_that_they_say(queries, given, schedule, restart):
    store, evaluation, found, since, ends = DictStore(), None, {}, {}, {}
    expected, _ = c.evaluated({str(n): plain(plan) for n, plan in enumerate(queries)}, given.steps)
    running = set()
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = c.added(
                {"rows": nodes.WindowOver(c.S, nodes.TimeRange(1))}, store
            )  # so that the stream is read all the time
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
            since[name] = max(evaluation.complete_from(name), -1 if first is None else first - 1)
        evaluation.save()
    for name, changes in found.items():
        for tau in range(since[name], min(c.END, ends.get(name, c.END))):
            assert c.at(pl.concat(changes), tau) == c.at(expected[name], tau), (name, tau, since, queries)


@given(
    windows=st.lists(st.sampled_from(WINDOWS), min_size=2, max_size=2),
    by=st.sampled_from(BYS),
    given=c.arrivals(20),
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
        "above": (begins + above, nodes.Where(both, c.call("gt", c.column("n"), c.constant(-1)))),
    }
    found = {name: [] for name in plans_}
    for number, (rows, bound) in enumerate(given.steps):
        starts = evaluation is None or restart
        evaluation = Evaluation(store, c.compiled) if starts else evaluation
        for name, (begin, plan) in plans_.items():
            if number == begin or (starts and number > begin):
                evaluation.add(name, plan)
        ones = [(time, key, 1, *more) for time, key, _, *more in rows["s"]]
        for name, changes in stepped(evaluation, ones, bound).changes.items():
            found[name].append(changes)
        evaluation.save()
    for name in ("both", "above"):
        for tau in range(c.END) if found[name] else ():
            for row in c.at(pl.concat(found[name]), tau):
                assert row[-2] == (row[-1] or 0), (name, tau, row)


def rows_at(*times):
    return [(time, "a", time, number, False) for number, time in enumerate(times)]


def test_a_later_query_finds_the_slices_that_are_there():
    evaluation = c.added({"long": of(nodes.TimeRange(20, 2), BYS[1], CALLS[:1])}, DictStore())
    stepped(evaluation, rows_at(1, 9, 10, 12), 13)
    evaluation.add("short", of(nodes.TimeRange(4, 4), BYS[1], CALLS[:1]))
    evaluation.add("hop", of(nodes.Hop(4, 4), BYS[1], CALLS[:1]))
    evaluation.add("other", of(nodes.TimeRange(4, 4), BYS[1], CALLS[8:9]))
    outcome = stepped(evaluation, [], 16)
    assert outcome.changes["short"].rows() == [("a", 3, 12, 1)]
    assert evaluation.complete_from("short") == BEGINNING
    assert outcome.changes["other"].height == 0  # it lacks the values
    assert evaluation.complete_from("other") == 16  # (12, 16] lacks nothing
    assert outcome.changes["hop"].height == 0
    assert evaluation.complete_from("hop") == 20  # [12, 16) lacks the row c.at 12


def test_a_later_query_of_a_longer_range_is_whole_when_no_dropped_slice_is_in_it():
    evaluation = c.added({"short": of(nodes.TimeRange(4, 2), (), CALLS[:1])}, DictStore())
    stepped(evaluation, rows_at(1, 3, 5, 7, 9), 11)
    stepped(evaluation, [], 13)
    stepped(evaluation, [], 15)
    evaluation.add("long", of(nodes.TimeRange(10, 2), (), CALLS[:1]))
    changes = stepped(evaluation, rows_at(15), 20).changes["long"]
    assert evaluation.complete_from("long") == 18
    assert c.at(changes, 18) == {(2,): 1}
    assert c.at(changes, 14) == {(1,): 1}


def test_a_query_stays_with_the_slices_that_it_began_with():
    """Also when a process that comes later sees others that fit, and the queries in another order."""
    store = DictStore()
    queries = {name: of(nodes.TimeRange(size, size), (), CALLS[:1]) for name, size in (("a", 20), ("c", 60), ("b", 30))}
    evaluation = c.added(queries, store)
    stepped(evaluation, rows_at(1, 2), 3)
    evaluation.save()
    evaluation = c.added({name: queries[name] for name in "cba"}, store)
    assert stepped(evaluation, [], 61).changes["c"].rows()[-1] == (2, 60, 1)


def test_a_query_starts_from_the_rows_of_its_window_if_they_are_there_and_no_slices():
    evaluation = c.added({"rows": nodes.WindowOver(c.S, nodes.TimeRange(4, 4))}, DictStore())
    stepped(evaluation, rows_at(1, 2), 5)
    evaluation.add("q", of(nodes.TimeRange(4, 4), (), CALLS[:1]))
    assert stepped(evaluation, [], 6).changes["q"].rows() == [(2, 4, 1)]
    assert evaluation.complete_from("q") == BEGINNING


def test_an_idle_step_writes_nothing_and_slices_go_when_no_window_has_them():
    store = CountingStore(inner := DictStore())
    evaluation = c.added(
        {"a": of(nodes.TimeRange(8, 4), BYS[1], CALLS), "b": of(nodes.TimeRange(16, 4), BYS[1], CALLS)}, store
    )
    stepped(evaluation, rows_at(1, 2, 3, 30), 5)
    evaluation.save()
    operators, written = inner.values["operators", 0], store.written
    stepped(evaluation, [], 6)
    assert store.written == written
    evaluation.save()
    assert inner.values["operators", 0] == operators
    stepped(evaluation, [], 25)
    assert evaluation.rows_kept == 2  # the last window, at 24, has the slice that ends at 12 and not the one at 4
    for _ in range(2):
        stepped(evaluation, [], HIGHEST)
    evaluation.save()
    assert {kind for kind, _ in inner.values} == {"head", "operators", "queries"}


def test_a_sum_that_overflows_ends_its_query_and_no_other():
    plans_ = {
        "sum": of(nodes.TimeRange(8, 4), (), CALLS[4:5]),
        "short": of(nodes.TimeRange(4, 4), (), CALLS[4:5]),
        "count": of(nodes.TimeRange(8, 4), (), CALLS[:1]),
    }
    evaluation = c.added(plans_, DictStore())
    big = [(1, "a", 2**63 - 1, 0, False), (5, "a", 1, 1, False)]
    assert stepped(evaluation, big, 5).failed == {}
    outcome = stepped(evaluation, [], 9)
    assert list(outcome.failed) == ["sum"]
    assert outcome.changes["short"].rows() == [(2**63 - 1, 8, -1), (1, 8, 1)]
    assert stepped(evaluation, [], 13).changes["count"].rows() == [(2, 12, -1), (1, 12, 1)]


def failing(expression, schema):
    """Return what fails for values above 10, where a c.constant of 10 is c.added."""
    made = c.compiled(expression, schema)
    if "10" not in str(expression):
        return made

    def evaluate(rows):
        if (rows["v"] > 10).any():
            raise pl.exceptions.ComputeError("above 10")
        return made.evaluate(rows)

    return Evaluable(evaluate, made.columns, made.type)


def test_a_value_or_condition_that_cannot_be_computed_ends_the_queries_that_want_it_and_no_other():
    ten = c.call("add", c.V, c.constant(10), kind=c.LONG)
    over = nodes.Where(nodes.WindowOver(c.S, nodes.TimeRange(8, 4)), c.call("gt", ten, c.constant(0)))
    plans_ = {
        "sum": of(nodes.TimeRange(8, 4), BYS[1], (nodes.Aggregation("s", "sum", (ten,), c.LONG), c.N)),
        "least": of(
            nodes.TimeRange(8, 4),
            BYS[1],
            (nodes.Aggregation("m", "min", (c.V,), c.LONG, where=c.call("gt", ten, c.constant(0))),),
        ),
        "over": nodes.GroupAggregates(over, (), CALLS[:1]),
        "count": of(nodes.TimeRange(8, 4), BYS[1], CALLS[:2]),
    }
    evaluation = Evaluation(DictStore(), failing)
    for name, each in plans_.items():
        evaluation.add(name, each)
    stepped(evaluation, [(1, "a", 1, 0, False)], 2)
    assert set(stepped(evaluation, [(2, "a", 11, 1, False)], 3).failed) == {"sum", "least", "over"}
    evaluation.add("sum", plans_["sum"])
    outcome = stepped(evaluation, [(3, "a", 3, 2, False)], 5)
    assert outcome.changes["count"].rows() == [("a", 3, 3, 4, 1)]
    assert outcome.changes["sum"].height == 0  # the slice lacks what came before
    assert evaluation.complete_from("sum") == 12


@given(given=c.arrivals())
def test_changes_of_a_relation_are_sliced_like_any_stream(given):
    first = nodes.Changes(
        nodes.GroupAggregates(
            nodes.WindowOver(c.S, nodes.TimeRange(5)), (("k", c.K),), (nodes.Aggregation("v", "count", (), c.LONG),)
        ),
        "istream",
    )
    plan = of(nodes.TimeRange(6, 2), BYS[1], CALLS[3:5], stream=first)
    found, _ = c.evaluated({"q": plan}, given.steps)
    expected, _ = c.evaluated({"q": plain(plan)}, given.steps)
    assert c.steps_of(found["q"]) == c.steps_of(expected["q"])


@example(c.Arrivals([({"s": [], "r": []}, 5), ({"s": [(6, None, None, 0, False)], "r": []}, HIGHEST)]))
@given(given=c.arrivals())
def test_a_stream_above_sees_every_change(given):
    plan = nodes.Changes(of(nodes.TimeRange(6, 2), (), CALLS[:1]), "istream")
    found, _ = c.evaluated({"q": plan, "r": plan.source}, given.steps)
    expected, _ = c.evaluated({"q": replace(plan, source=plain(plan.source))}, given.steps)
    assert c.steps_of(found["q"]) == c.steps_of(expected["q"])
    assert found["q"].filter(pl.col(WEIGHT) < 0).height == 0
    assert found["r"].get_column(TIME).min() in {None, BEGINNING}


LISTS = column("l", pa.list_(LONG))
SUM = nodes.Aggregation("s", "sum", (V,), LONG)
BY = (("g", K),)
ADDED, MODULO = call("add", V, constant(1), kind=LONG), call("mod", V, constant(2), kind=LONG)


def over(window, *aggregates, by=BY):
    return nodes.GroupAggregates(nodes.WindowOver(S, window), by, aggregates or (N,))


def test_conditions_and_projections_are_in_terms_of_the_stream():
    source = nodes.Project(nodes.Where(nodes.WindowOver(S, nodes.TimeRange(4, 2)), LARGE), (("k", ADDED), ("z", K)))
    source = nodes.Where(source, call("lt", column("k"), constant(9)))
    by = (("a", column("z", TEXT)), ("b", column("z", TEXT)))
    shape = shape_of(nodes.GroupAggregates(source, by, (replace(SUM, arguments=(column("k"),)),)))
    assert shape.conditions == (LARGE, call("lt", ADDED, constant(9)))
    assert shape.by == (K,)
    assert shape.names == (("a", 0), ("b", 0))
    assert shape.aggregates[0].arguments == (ADDED,)


@pytest.mark.parametrize(
    ("plan", "width", "shift"),
    [
        (over(nodes.TimeRange(6, 4)), 2, 0),
        (over(nodes.Hop(6, 3)), 3, 1),
        (over(nodes.TimeRange(4, 4), N, SUM), 4, 0),
        (over(nodes.TimeRange(4)), None, 0),
        (over(nodes.TimeRange(3, 4)), None, 0),
        (over(nodes.RowWindow(3)), None, 0),
        (over(nodes.Hop(4, 4, True)), None, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, distinct=True)), None, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, function="approx_count_distinct")), 4, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, function="approx_count_distinct", arguments=(LISTS,))), None, 0),
        (over(nodes.TimeRange(4, 4), N, replace(SUM, function="collect_set", type=pa.list_(LONG))), None, 0),
        (nodes.WindowOver(S, nodes.TimeRange(4, 4)), None, 0),
    ],
)
def test_shapes(plan, width, shift):
    shape = shape_of(plan)
    assert (None if shape is None else shape.width) == width
    assert shape is None or shape.shift_us == shift


def test_over_what_is_given_there_is_no_window():
    plan = over(nodes.TimeRange(4, 4))
    assert shape_of(plan, [plan.source]) is None
    filtered = nodes.Where(plan.source, LARGE)
    assert shape_of(replace(plan, source=filtered), [filtered]) is None


def test_equal_rows_and_groups_are_one_family():
    def key(plan):
        return family_key(shape_of(plan))

    other = (("h", MODULO), ("x", K))
    assert is_family(key(over(nodes.TimeRange(4, 4))))
    assert not is_family(identity(over(nodes.TimeRange(4, 4))))
    assert key(over(nodes.TimeRange(4, 4))) == key(over(nodes.TimeRange(6, 2), SUM, by=(("other", K),)))
    assert key(over(nodes.TimeRange(4, 4), by=other)) == key(over(nodes.TimeRange(4, 4), by=other[::-1]))
    assert key(over(nodes.TimeRange(4, 4))) != key(over(nodes.Hop(4, 4)))
    assert key(over(nodes.TimeRange(4, 4))) != key(over(nodes.TimeRange(4, 4), by=()))
    assert key(nodes.GroupAggregates(nodes.Where(nodes.WindowOver(S, nodes.TimeRange(4, 4)), LARGE), BY, (N,))) != key(
        over(nodes.TimeRange(4, 4))
    )


def test_the_widest_slices_that_fit_are_taken():
    there = ["f-slices-4", "f-slices-6", "f-slices-24", "f-slices-5", "g-slices-12"]
    assert width_among("f-slices-", shape_of(over(nodes.TimeRange(12, 12))), there) == 6
    assert width_among("f-slices-", shape_of(over(nodes.TimeRange(7, 7))), ["f-slices-4"]) == 7


def test_slices_that_are_much_too_narrow_are_not_taken():
    for window, width in (
        (nodes.TimeRange(2048, 2048), 2),
        (nodes.TimeRange(2050, 2050), 2050),
        (nodes.TimeRange(2050, 2), 2),
    ):
        assert width_among("f-slices-", shape_of(over(window)), ["f-slices-2"]) == width


def test_the_narrowest_of_a_plan_counts():
    joined = nodes.SetOperation(over(nodes.TimeRange(12, 4)), over(nodes.TimeRange(9, 3)), "union", all=True)
    plans = (joined, over(nodes.TimeRange(12, 4)), over(nodes.TimeRange(4)), nodes.WindowOver(S, nodes.TimeRange(4, 2)))
    assert [narrowest(each) for each in plans] == [3, 4, 0, 0]


# --- the change points of windows

COUNTS = Aggregates.of({"n": count()}, pa.schema([]))


def table_of(slices):
    table = SliceTable.empty(COUNTS, pl.DataFrame(schema={"k": pl.String}))
    if not slices:
        return table
    state = COUNTS.lift(pa.table({"": pa.nulls(len(slices))}), np.arange(len(slices)), len(slices))
    keys = pl.DataFrame({"k": [key for key, _ in slices]}, schema={"k": pl.String})
    return table.with_more([Partials(keys, np.array([number for _, number in slices], dtype=np.int64), state)])


def test_the_last_multiple_is_below():
    assert [last_multiple(until, 4) for until in (4, 5, 8, 9, 0, -4)] == [0, 4, 4, 8, -4, -8]
    assert last_multiple(LOWEST, 4) == LOWEST


@given(
    slices=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-4, 8)), max_size=8),
    window=st.sampled_from([(4, 2), (2, 2), (6, 4), (12, 4), (6, 6)]),
    before=st.one_of(st.just(LOWEST), st.integers(-8, 20)),
    more=st.one_of(st.none(), st.integers(0, 20)),
    above=st.one_of(st.just(LOWEST), st.integers(-6, 12)),
    begins=st.booleans(),
)
def test_points_are_where_slices_enter_and_leave(slices, window, before, more, above, begins):
    """Windows have no slice that is left out, but all points."""
    range_us, slide = window
    first = before == LOWEST
    until = HIGHEST if more is None else (0 if first else before) + more
    span = Span(before, until, BEGINNING if first else before - 1)
    table = table_of(slices)
    points = points_of(table, 2, range_us, slide, span, above, begins=begins or first, always=False)
    raised = lambda time: -(-time // slide) * slide  # noqa: E731
    lower = -10_000 if first else before
    expected = {}
    for key, number in slices:
        enters, leaves = raised(number * 2), raised(number * 2 + range_us)
        times = {each for each in (enters, leaves) if lower <= each < until}
        if begins and not first and enters < before <= leaves:
            times.add(before - 1)
        if times:
            expected.setdefault(key, set()).update(times)
    found = {}
    if points is not None:
        for group, time, low, high in zip(points.groups, points.times, points.low, points.high, strict=True):
            key = table.keys["k"][int(group)]
            found.setdefault(key, []).append(int(time))
            end = (before - 1 if time == OLD else int(time)) // slide * slide
            inside = sorted({n for k, n in slices if k == key and end - range_us < n * 2 <= end and n > above})
            if time == OLD and (begins or first):
                inside = []
            assert table.slices[low:high].tolist() == inside
    assert {key: times[1:] for key, times in found.items()} == {key: sorted(times) for key, times in expected.items()}
    assert all(times[0] == OLD for times in found.values())


def test_the_window_at_a_time_has_its_groups():
    table = table_of([("a", 1), ("b", 2), ("a", 3)])
    points = window_at(table, 2, 4, 6, LOWEST)
    assert points.groups.tolist() == [0, 1]
    assert (points.high - points.low).tolist() == [1, 1]
    assert window_at(table, 2, 4, 6, 1).groups.tolist() == [0, 1]
    assert window_at(table, 2, 4, 6, 2).groups.tolist() == [0]
    assert window_at(table, 2, 6, 6, 1).low.tolist() == [1, 2], "a has slice 3 alone"
