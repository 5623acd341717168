"""DISTINCT, the set operations and numbered copies: at any time what SQL finds, with and without ALL."""

import pytest
from hypothesis import given

from upstream.operators.relations import zsets
from upstream.operators.relations.plan.nodes import Copies, Distinct, Project, SetOperation, TimeRange, WindowOver
from upstream.operators.state.store import DictStore

from .checking import J, K, R, S, V, W, added, arrivals, check, rows_of_s, windows

KEYS, VALUES = (("k", K),), (("k", K), ("v", V))
OTHER_KEYS, OTHER_VALUES = (("j", J),), (("j", J), ("w", W))


@given(source=windows(S), given=arrivals())
def test_distinct_rows_are_there_once(source, given):
    check(Distinct(Project(source[0], VALUES)), f"SELECT DISTINCT k, v FROM ({source[1]})", given)


@pytest.mark.parametrize("all_", [False, True], ids=["", "all"])
@pytest.mark.parametrize("kind", ["union", "except", "intersect"])
@given(left=windows(S), right=windows(R), given=arrivals())
def test_a_set_operation_is_what_sql_finds(kind, all_, left, right, given):
    operation = f"{kind} {'ALL' if all_ else ''}"
    for mine, its, ours, theirs in ((KEYS, OTHER_KEYS, "k", "j"), (VALUES, OTHER_VALUES, "k, v", "j, w")):
        plan = SetOperation(Project(left[0], mine), Project(right[0], its), kind, all_)
        check(plan, f"SELECT {ours} FROM ({left[1]}) {operation} SELECT {theirs} FROM ({right[1]})", given)


@given(source=windows(S), given=arrivals())
def test_copies_of_a_row_are_numbered_and_each_is_there_once(source, given):
    number = "ROW_NUMBER() OVER (PARTITION BY k, v) - 1"
    check(Copies(Project(source[0], VALUES), "copy"), f"SELECT k, v, {number} FROM ({source[1]})", given)
    check(
        Copies(Project(source[0], KEYS), "n"),
        f"SELECT k, ROW_NUMBER() OVER (PARTITION BY k) - 1 FROM ({source[1]})",
        given,
    )


def test_numbered_copies_are_no_more_than_a_step_can_hold(monkeypatch):
    monkeypatch.setattr(zsets, "_MOST_GROWTH", 10)
    evaluation = added({"q": Copies(Project(WindowOver(S, TimeRange(100)), (("k", K),)), "copy")}, DictStore())
    assert evaluation.step(rows_of_s(*[1] * 11), 2).changes["q"].height == 11
    assert "more than there are" in str(evaluation.step(rows_of_s(*[3] * 13), 4).failed["q"])
