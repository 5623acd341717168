from upstream.operators.relations.plan.nodes import Aggregation, GroupAggregates, TimeRange, WindowOver
from upstream.operators.state.store import DictStore

from .checking import LONG, K, S, V, added, frame

MOST = Aggregation("m", "max", (V,), LONG)


def stepped(evaluation, rows, bound):
    return evaluation.step({"s": frame(S, rows)}, bound).changes


def test_groups_that_stay_as_they_are_do_not_come_out():
    evaluation = added({"q": GroupAggregates(WindowOver(S, TimeRange(8, 4)), (("k", K),), (MOST,))}, DictStore())
    rows = [(1, "a", 5, 0, False), (1, "b", 5, 1, False), (6, "a", 2, 2, False), (7, "b", None, 3, False)]
    assert stepped(evaluation, rows, 5)["q"].rows() == [("a", 5, 4, 1), ("b", 5, 4, 1)]
    assert stepped(evaluation, [], 9)["q"].height == 0
    changes = stepped(evaluation, [], 13)["q"]
    assert set(changes.rows()) == {("a", 5, 12, -1), ("a", 2, 12, 1), ("b", 5, 12, -1), ("b", None, 12, 1)}
    assert stepped(evaluation, [], 99)["q"].rows() == [("a", 2, 16, -1), ("b", None, 16, -1)]
