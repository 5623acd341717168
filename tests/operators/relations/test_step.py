"""One step: with all change points or the net change, for queries that share operators and need different ones."""

from collections import Counter

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.zsets import BEGINNING, TIME
from upstream.operators.state.store import DictStore

from . import checking as c

M = nodes.Aggregation("m", "max", (c.V,), c.LONG)
SLIDING, HOPPING = nodes.WindowOver(c.S, nodes.TimeRange(6, 2)), nodes.WindowOver(c.S, nodes.Hop(6, 2, columns=True))
COUNTS = nodes.GroupAggregates(SLIDING, (("k", c.K),), (c.N, M))
PAIRS = nodes.Join(SLIDING, nodes.WindowOver(c.R, nodes.TimeRange(7)), "left", ((c.K, c.J),))
CAME = nodes.Changes(COUNTS, "istream")
RELATIONS = {
    "sliding": SLIDING,
    "hopping": HOPPING,
    "tumbling": nodes.WindowOver(c.S, nodes.Hop(3, 3, columns=True)),
    "now": nodes.WindowOver(c.S, nodes.Now()),
    "rows": nodes.WindowOver(c.S, nodes.RowWindow(2, ("k",))),
    "all rows": nodes.GroupAggregates(nodes.WindowOver(c.S, nodes.UnboundedWindow()), (), (c.N,)),
    "counts": COUNTS,
    "windows": nodes.GroupAggregates(
        HOPPING, (("e", c.column("window_end", HOPPING.schema.field("window_end").type)),), (c.N,)
    ),
    "pairs": PAIRS,
    **{
        how: nodes.Join(SLIDING, nodes.WindowOver(c.R, nodes.TimeRange(7)), how, ((c.K, c.J),), c.call("lt", c.V, c.W))
        for how in ("full", "semi", "anti")
    },
    "first": nodes.Top(PAIRS, (nodes.Order(c.W, descending=True),), 2, (c.K,)),
    "ranks": nodes.WindowFunctions(PAIRS, (nodes.Order(c.W),), (c.K,), c.FUNCTIONS),
    "values": nodes.Distinct(nodes.Project(SLIDING, (("v", c.V),))),
    "missing": nodes.SetOperation(
        nodes.Project(SLIDING, (("k", c.K),)),
        nodes.Project(nodes.WindowOver(c.R, nodes.TimeRange(7)), (("j", c.J),)),
        "except",
        True,
    ),
    "of changes": nodes.GroupAggregates(
        nodes.WindowOver(CAME, nodes.TimeRange(4)), (("k", c.K),), (nodes.Aggregation("c", "count", (), c.LONG),)
    ),
}
STREAMS = {"came": CAME, "left": nodes.Changes(PAIRS, "dstream"), "everything": nodes.Changes(COUNTS, "rstream", 5)}


def run(given, collapses, restart=True, plans=RELATIONS | STREAMS):
    """Return the changes of each step by query, when the queries of that step are the collapsed ones."""
    store, found, evaluation = DictStore(), [], None
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = Evaluation(store, c.compiled)
            for name, plan in plans.items():
                evaluation.add(name, plan, collapse=name in collapses[number % len(collapses)])
        outcome = evaluation.step(c.frames(rows), bound)
        assert not outcome.failed, outcome.failed
        found.append((outcome.changes, bound))
        evaluation.save()
    return found


def net(changes):
    return c.at(changes, HIGHEST)


CHOICES = st.lists(st.sets(st.sampled_from([*RELATIONS, *STREAMS])), min_size=1, max_size=3)


@given(given=c.arrivals(), collapses=CHOICES)
def test_each_step_adds_up_to_the_same_whichever_queries_are_collapsed(given, collapses):
    """Also where the choice changes from step to step: the state does not depend on it."""
    whole = run(given, [set()])
    for number, ((found, bound), (expected, _)) in enumerate(zip(run(given, collapses), whole, strict=True)):
        for name in RELATIONS:
            if name in collapses[number % len(collapses)]:
                assert set(found[name][TIME]) <= {bound - 1}
                assert net(found[name]) == net(expected[name]), name
                counts = Counter(row[:-1] for row in found[name].rows())
                assert set(counts.values()) <= {1}, name
            else:
                assert c.steps_of(found[name]) == c.steps_of(expected[name]), name
        for name in STREAMS:
            assert c.steps_of(found[name]) == c.steps_of(expected[name]), name


@given(given=c.arrivals(), name=st.sampled_from([*RELATIONS]))
def test_a_query_by_itself_collapses_to_the_same(given, name):
    """Nothing else then asks for change points, so each operator computes the net change only."""
    plans = {name: RELATIONS[name]}
    whole = run(given, [set()], plans=plans)
    alone = run(given, [{name}], restart=False, plans=plans)
    for (found, bound), (expected, _) in zip(alone, whole, strict=True):
        assert net(found[name]) == net(expected[name])
        assert set(found[name][TIME]) <= {bound - 1}


def test_a_stream_begins_with_what_is_there_in_a_query_that_is_collapsed():
    evaluation = Evaluation(DictStore(), c.compiled)
    evaluation.add("table", COUNTS, collapse=True)
    assert evaluation.step(c.rows_of_s(*range(0, 40, 2)), 40).changes["table"].rows() == [("a", 3, 38, 39, 1)]
    evaluation.add("came", CAME)
    changes = evaluation.step(c.rows_of_s(*range(40, 60, 2)), 60).changes
    assert changes["came"][TIME].to_list() == [39, *range(40, 60, 2)]
    assert changes["table"].rows() == [("a", 3, 38, 59, -1), ("a", 3, 58, 59, 1)]


def test_a_result_is_collapsed_once_for_all_that_read_it():
    evaluation = c.added({"came": nodes.Changes(SLIDING, "istream")}, DictStore())
    for name in ("one", "other"):
        evaluation.add(name, SLIDING, collapse=True)
    changes = evaluation.step(c.rows_of_s(7, 8, 9), 10).changes
    assert changes["one"].height
    assert changes["one"] is changes["other"]


TOO_MUCH = [(1, "a", 2**63 - 1, 0, False), (2, "a", 1, 1, False)]


@pytest.mark.parametrize("collapse", [False, True])
def test_what_fails_only_between_two_change_points_fails_a_query_as_long_as_somebody_needs_them(collapse):
    total = nodes.GroupAggregates(SLIDING, (), (nodes.Aggregation("x", "sum", (c.V,), c.LONG),))
    evaluation = Evaluation(DictStore(), c.compiled)
    evaluation.add("table", total, collapse=collapse)
    evaluation.add("stream", nodes.Changes(total, "istream"))
    evaluation.remove("stream")
    assert bool(evaluation.step({"s": c.frame(c.S, TOO_MUCH)}, 30).failed) == (not collapse)
    evaluation.add("stream", nodes.Changes(total, "istream"))
    later = [(time + 30, *row) for time, *row in TOO_MUCH]
    assert set(evaluation.step({"s": c.frame(c.S, later)}, 60).failed) == {"stream"} | (
        {"table"} if collapse else set()
    )


S5 = nodes.WindowOver(c.S, nodes.TimeRange(5))
POSITIVE = nodes.Where(nodes.WindowOver(c.S, nodes.UnboundedWindow()), c.call("gt", c.V, c.constant(0)))


EVER, EVER_R = nodes.WindowOver(c.S, nodes.UnboundedWindow()), nodes.WindowOver(c.R, nodes.UnboundedWindow())
KEYS, OTHER_KEYS = nodes.Project(EVER, (("k", c.K),)), nodes.Project(EVER_R, (("j", c.J),))
AGGREGATES = (
    c.N,
    nodes.Aggregation("s", "sum", (c.V,), c.LONG),
    nodes.Aggregation("d", "count", (c.V,), c.LONG, distinct=True),
    nodes.Aggregation("m", "max", (c.V,), c.LONG),
    nodes.Aggregation("l", "collect_set", (c.V,), pa.list_(c.LONG)),
)
KEPT = {
    "groups": nodes.GroupAggregates(EVER, (("k", c.K),), AGGREGATES),
    "the whole": nodes.GroupAggregates(POSITIVE, (), AGGREGATES),
    "distinct": nodes.Distinct(KEYS),
    "copies": nodes.Copies(nodes.Project(EVER, (("v", c.V),)), "copy"),
    "except": nodes.SetOperation(KEYS, OTHER_KEYS, "except", True),
    "intersect": nodes.SetOperation(KEYS, OTHER_KEYS, "intersect", False),
    "first": nodes.Top(EVER, (nodes.Order(c.V, descending=True),), 2, (c.K,)),
    "newest": nodes.WindowOver(c.S, nodes.RowWindow(2, ("k",))),
    "inner": nodes.Join(EVER, EVER_R, "inner", ((c.K, c.J),)),
    "semi": nodes.Join(S5, EVER_R, "semi", ((c.K, c.J),), c.call("lt", c.V, c.W)),
    "cross": nodes.Join(EVER, EVER_R, "left", (), c.call("lt", c.V, c.W)),
}
PADDED = {
    **{how: nodes.Join(EVER, EVER_R, how, ((c.K, c.J),)) for how in ("left", "right", "full", "anti")},
    "not in": nodes.Join(EVER, EVER_R, "null_aware_anti", ((c.K, c.J),)),
    "not in of some": nodes.Join(EVER, EVER_R, "null_aware_anti", ((c.V, c.W), (c.K, c.J))),
}


def over(plan, what):
    """Return a relation over another one, by another operator than those that run."""
    name = plan.schema.names[0]
    first = c.column(name, plan.schema.field(name).type)
    match what:
        case "projected":
            return nodes.Project(plan, ((f"{name} of it", first),))
        case "counted":
            return nodes.GroupAggregates(plan, ((name, first),), (nodes.Aggregation("c", "count", (), c.LONG),))
        case "joined":
            on = c.column("x", first.type), {c.TEXT: c.J, c.LONG: c.W}[first.type]
            return nodes.Join(
                nodes.Project(plan, (("x", first),)), nodes.WindowOver(c.R, nodes.Latest()), "left", (on,)
            )
    return plan


@given(
    given=c.arrivals(),
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
    whole, _ = c.evaluated({"q": plan}, given.steps)
    store, evaluation, found, joined = DictStore(), None, [], None
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = c.added({"newest": nodes.WindowOver(c.R, nodes.Latest())}, store)
            evaluation.add("base", base, collapse=collapse[0])
            if joined is not None:
                evaluation.add("q", plan, collapse=collapse[1])
        if joined is None and (number >= after or number == len(given.steps) - 1):
            evaluation.add("q", plan, collapse=collapse[1])
            joined = bound
        outcome = evaluation.step(c.frames(rows), bound)
        assert not outcome.failed
        found += [outcome.changes["q"]] if "q" in outcome.changes else []
        evaluation.save()
        if joined is None:
            continue
        if name in PADDED and evaluation.complete_from("q") is None:
            assert any(None in row[1:3] for some in given.rows.values() for row in some)
            return
        assert evaluation.complete_from("q") == BEGINNING
        for tau in [bound - 1] if collapse[1] else range(joined - 1, min(bound, c.END)):
            assert c.at(pl.concat(found), tau) == c.at(whole["q"], tau), tau


def test_rows_that_a_join_gives_without_a_partner_and_does_not_keep_are_missed():
    for how, side in (("left", "s"), ("anti", "s"), ("full", "r"), ("right", "r")):
        for key in ("a", None):
            evaluation = c.added({"base": PADDED[how]}, DictStore())
            stream = {"s": c.S, "r": c.R}[side]
            evaluation.step({side: c.frame(stream, [(1, key, 1, 0, False)])}, 3)
            evaluation.add("q", PADDED[how])
            changes = evaluation.step({}, 4).changes["q"]
            assert changes.height == (key is not None)
            assert evaluation.complete_from("q") == (BEGINNING if key else None)
