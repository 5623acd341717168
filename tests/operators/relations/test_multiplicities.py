"""DISTINCT, the set operations and numbered copies: at any time what SQL finds, with and without ALL."""

import pytest
from hypothesis import given

from upstream.operators.relations.plan.nodes import Copies, Distinct, Project, SetOperation

from .checking import J, K, R, S, V, W, arrivals, check, windows

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
