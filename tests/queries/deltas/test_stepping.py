"""One step: with all change points or the net change, for queries that share operators and need different ones."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas import stepping
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.zsets import TIME, collapsed
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Changes,
    Distinct,
    Hop,
    Join,
    Now,
    Order,
    Project,
    Range,
    Rows,
    SetOperation,
    Top,
    Unbounded,
    Windowed,
)

from .checking import LONG, TEXT, R, S, arrivals, at, column, compiled, frame, steps_of

K, V, J, W = column("k", TEXT), column("v"), column("j", TEXT), column("w")
N, M = Aggregation("n", "count", (), LONG), Aggregation("m", "max", (V,), LONG)
SLIDING, HOPPING = Windowed(S, Range(6, 2)), Windowed(S, Hop(6, 2, columns=True))
COUNTS = Aggregate(SLIDING, (("k", K),), (N, M))
PAIRS = Join(SLIDING, Windowed(R, Range(7)), "left", ((K, J),))
CAME = Changes(COUNTS, "istream")
RELATIONS = {
    "sliding": SLIDING,
    "hopping": HOPPING,
    "tumbling": Windowed(S, Hop(3, 3, columns=True)),
    "now": Windowed(S, Now()),
    "rows": Windowed(S, Rows(2, ("k",))),
    "all rows": Aggregate(Windowed(S, Unbounded()), (), (N,)),
    "counts": COUNTS,
    "windows": Aggregate(HOPPING, (("e", column("window_end", HOPPING.schema.field("window_end").type)),), (N,)),
    "pairs": PAIRS,
    "first": Top(PAIRS, (Order(W, descending=True),), 2, (K,)),
    "values": Distinct(Project(SLIDING, (("v", V),))),
    "missing": SetOperation(Project(SLIDING, (("k", K),)), Project(Windowed(R, Range(7)), (("j", J),)), "except", True),
    "of changes": Aggregate(Windowed(CAME, Range(4)), (("k", K),), (Aggregation("c", "count", (), LONG),)),
}
STREAMS = {"came": CAME, "left": Changes(PAIRS, "dstream"), "everything": Changes(COUNTS, "rstream", 5)}


def run(given, collapses, restart=True, only=None):
    """Return the changes of each step by query, when the queries of that step are the collapsed ones."""
    store, found, evaluation = DictStore(), [], None
    for number, (rows, bound) in enumerate(given.steps):
        chosen = collapses[number % len(collapses)]
        if evaluation is None or restart:
            evaluation = Evaluation(store, compiled)
            for name, plan in {**RELATIONS, **STREAMS}.items():
                if only is None or name in only:
                    evaluation.add(name, plan, collapse=name in chosen)
        outcome = evaluation.step({"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}, bound)
        assert not outcome.failed, outcome.failed
        found.append((outcome.changes, bound))
        evaluation.save()
    return found


def net(changes):
    return at(changes, HIGHEST)


CHOICES = st.lists(st.sets(st.sampled_from([*RELATIONS, *STREAMS])), min_size=1, max_size=3)


@given(given=arrivals(), collapses=CHOICES)
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
                assert steps_of(found[name]) == steps_of(expected[name]), name
        for name in STREAMS:
            assert steps_of(found[name]) == steps_of(expected[name]), name


@given(given=arrivals(), name=st.sampled_from([*RELATIONS]))
def test_a_query_by_itself_collapses_to_the_same(given, name):
    """Nothing else then asks for change points, so each operator computes the net change only."""
    whole = run(given, [set()], only={name})
    alone = run(given, [{name}], restart=False, only={name})
    for (found, bound), (expected, _) in zip(alone, whole, strict=True):
        assert net(found[name]) == net(expected[name])
        assert set(found[name][TIME]) <= {bound - 1}


@given(given=arrivals(), after=st.integers(0, 3), name=st.sampled_from([*RELATIONS]))
def test_a_collapsed_query_that_comes_later_begins_with_what_is_there(given, after, name):
    evaluation, plain = Evaluation(DictStore(), compiled), Evaluation(DictStore(), compiled)
    for base in (SLIDING, HOPPING, PAIRS, CAME, Windowed(R, Range(7))):
        for each in (evaluation, plain):
            each.add(repr(base), base)
    for number, (rows, bound) in enumerate(given.steps):
        if number == min(after, len(given.steps) - 1):
            evaluation.add("q", RELATIONS[name], collapse=True)
            plain.add("q", RELATIONS[name])
        streams = {"s": frame(S, rows["s"]), "r": frame(R, rows["r"])}
        found, expected = evaluation.step(streams, bound).changes, plain.step(streams, bound).changes
        if "q" in found:
            assert net(found["q"]) == net(expected["q"])
            assert set(found["q"][TIME]) <= {bound - 1}


def test_operators_compute_the_net_change_only_unless_somebody_needs_more():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("table", COUNTS, collapse=True)
    rows = {"s": frame(S, [(time, "a", time, time, False) for time in range(0, 40, 2)])}
    assert evaluation.step(rows, 40).changes["table"].rows() == [("a", 3, 38, 39, 1)]
    evaluation.add("came", CAME)
    later = {"s": frame(S, [(time, "a", time, time, False) for time in range(40, 60, 2)])}
    changes = evaluation.step(later, 60).changes
    assert changes["came"][TIME].to_list() == [39, *range(40, 60, 2)]  # it begins with what is there
    assert changes["table"].rows() == [("a", 3, 38, 59, -1), ("a", 3, 58, 59, 1)]
    evaluation.remove("came")
    assert evaluation.step({}, 70).changes["table"].rows() == [("a", 3, 58, 69, -1)]


def test_a_result_is_collapsed_once_for_all_that_read_it(monkeypatch):
    calls = []

    def counted(delta, time):
        calls.append(delta.height)
        return collapsed(delta, time)

    monkeypatch.setattr(stepping, "collapsed", counted)
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("came", Changes(SLIDING, "istream"))
    for number in range(5):
        evaluation.add(
            f"values {number}",
            Aggregate(SLIDING, (("k", K),), (Aggregation(f"n{number}", "collect_set", (V,), pa.list_(LONG)),)),
            collapse=True,
        )
    rows = {"s": frame(S, [(time, "a", time, time, False) for time in range(10)])}
    outcome = evaluation.step(rows, 40)
    assert calls == [20]
    assert all(changes.height == 0 for name, changes in outcome.changes.items() if name != "came")


@pytest.mark.parametrize("collapse", [False, True])
def test_what_fails_only_between_two_change_points_fails_a_query_that_needs_them(collapse):
    total = Aggregate(SLIDING, (), (Aggregation("x", "sum", (V,), LONG),))
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", total, collapse=collapse)
    rows = {"s": frame(S, [(1, "a", 2**63 - 1, 0, False), (2, "a", 1, 1, False)])}
    outcome = evaluation.step(rows, 30)
    assert bool(outcome.failed) == (not collapse)
    assert isinstance(outcome.changes.get("q", pl.DataFrame()), pl.DataFrame)


def test_change_points_are_computed_as_long_as_somebody_needs_them():
    total = Aggregate(SLIDING, (), (Aggregation("x", "sum", (V,), LONG),))
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("table", total, collapse=True)
    evaluation.add("stream", Changes(total, "istream"))
    evaluation.remove("stream")
    rows = {"s": frame(S, [(1, "a", 2**63 - 1, 0, False), (2, "a", 1, 1, False)])}
    assert not evaluation.step(rows, 30).failed
    evaluation.add("stream", Changes(total, "istream"))
    rows = {"s": frame(S, [(31, "a", 2**63 - 1, 2, False), (32, "a", 1, 3, False)])}
    assert set(evaluation.step(rows, 60).failed) == {"table", "stream"}
