"""DISTINCT, the set operations and numbered copies: at any time what SQL finds, with and without ALL."""

from __future__ import annotations

import pytest
from hypothesis import given

from upstream.queries.relations.nodes import Copies, Distinct, Project, Range, SetOperation

from .checking import TEXT, R, S, arrivals, check, column, window, windows

K, V = (("k", column("k", TEXT)),), (("k", column("k", TEXT)), ("v", column("v")))
J, W = (("j", column("j", TEXT)),), (("j", column("j", TEXT)), ("w", column("w")))


@given(source=windows(S), given=arrivals())
def test_distinct_rows_are_there_once(source, given):
    check(Distinct(Project(source[0], V)), f"SELECT DISTINCT k, v FROM ({source[1]})", given)


@pytest.mark.parametrize("all_", [False, True], ids=["", "all"])
@pytest.mark.parametrize("kind", ["union", "except", "intersect"])
@given(left=windows(S), right=windows(R), given=arrivals())
def test_a_set_operation_is_what_sql_finds(kind, all_, left, right, given):
    operation = f"{kind} {'ALL' if all_ else ''}"
    for mine, its, ours, theirs in ((K, J, "k", "j"), (V, W, "k, v", "j, w")):
        plan = SetOperation(Project(left[0], mine), Project(right[0], its), kind, all_)
        check(plan, f"SELECT {ours} FROM ({left[1]}) {operation} SELECT {theirs} FROM ({right[1]})", given)


@given(source=windows(S), given=arrivals())
def test_copies_of_a_row_are_numbered_and_each_is_there_once(source, given):
    number = "ROW_NUMBER() OVER (PARTITION BY k, v) - 1"
    check(Copies(Project(source[0], V), "copy"), f"SELECT k, v, {number} FROM ({source[1]})", given)
    check(
        Copies(Project(source[0], K), "n"),
        f"SELECT k, ROW_NUMBER() OVER (PARTITION BY k) - 1 FROM ({source[1]})",
        given,
    )


@given(given=arrivals())
def test_nothing_stays_in_the_state_when_all_rows_have_left(given):
    (left, left_sql), (right, right_sql) = window(S, Range(3)), window(R, Range(5))
    plan = SetOperation(Project(left, V), Project(right, W), "except", True)
    store = check(plan, f"SELECT k, v FROM ({left_sql}) EXCEPT ALL SELECT j, w FROM ({right_sql})", given, [30])
    # What an evaluation notes of itself; of rows there is nothing.
    assert {kind for kind, _ in store.values} <= {"head", "operators", "queries"}
