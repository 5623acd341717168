"""Windows over slices: what they emit, and what they contain."""

from __future__ import annotations

import polars as pl

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.slices_windows import WindowAggregates
from upstream.queries.deltas.zsets import BEGINNING, TIME
from upstream.queries.relations.nodes import Aggregate, Aggregation, Range, Windowed

from .checking import LONG, TEXT, S, column, compiled, frame

N, MOST = Aggregation("n", "count", (), LONG), Aggregation("m", "max", (column("v"),), LONG)


def stepped(evaluation, rows, bound):
    return evaluation.step({"s": frame(S, rows)}, bound).changes


def test_groups_that_stay_as_they_are_do_not_come_out():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", Aggregate(Windowed(S, Range(8, 4)), (("k", column("k", TEXT)),), (MOST,)))
    rows = [(1, "a", 5, 0, False), (1, "b", 5, 1, False), (6, "a", 2, 2, False), (7, "b", None, 3, False)]
    assert stepped(evaluation, rows, 5)["q"].rows() == [("a", 5, 4, 1), ("b", 5, 4, 1)]
    assert stepped(evaluation, [], 9)["q"].height == 0
    changes = stepped(evaluation, [], 13)["q"]
    assert set(changes.rows()) == {("a", 5, 12, -1), ("a", 2, 12, 1), ("b", 5, 12, -1), ("b", None, 12, 1)}
    assert stepped(evaluation, [], 99)["q"].rows() == [("a", 2, 16, -1), ("b", None, 16, -1)]


def test_without_groups_there_is_one_row_from_the_beginning_on_and_always():
    evaluation = Evaluation(DictStore(), compiled)
    evaluation.add("q", Aggregate(Windowed(S, Range(8, 4)), (), (N, MOST)))
    assert stepped(evaluation, [], 5)["q"].rows() == [(0, None, BEGINNING, 1)]
    evaluation.add("again", Aggregate(Windowed(S, Range(8, 4)), (), (N, MOST)))
    assert stepped(evaluation, [(5, "a", 3, 0, False)], 8)["again"].rows() == [(0, None, 4, 1)]
    assert stepped(evaluation, [], 99)["q"].rows() == [(0, None, 8, -1), (1, 3, 8, 1), (1, 3, 16, -1), (0, None, 16, 1)]


def test_an_equal_query_finds_what_is_there():
    store = DictStore()
    plan = Aggregate(Windowed(S, Range(8, 4)), (("k", column("k", TEXT)),), (N,))
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", plan)
    stepped(evaluation, [(1, "a", 5, 0, False), (5, "b", 5, 1, False)], 7)
    evaluation.save()
    evaluation = Evaluation(store, compiled)
    evaluation.add("q", plan)
    evaluation.add("again", plan)
    (top,) = [each.operator for each in evaluation._running.values() if isinstance(each.operator, WindowAggregates)]
    assert top.contents().select(pl.exclude(TIME)).rows() == [("a", 1, 1)]
    changes = stepped(evaluation, [], 9)
    assert changes["q"].rows() == [("b", 1, 8, 1)]
    assert changes["again"].rows() == [("a", 1, 6, 1), ("b", 1, 8, 1)]
