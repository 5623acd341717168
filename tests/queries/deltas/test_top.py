"""ORDER BY ... LIMIT n at any time, by group, with ties and nulls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from upstream.queries.relations.nodes import Order, Project, Range, Top

from .checking import TEXT, S, arrivals, check, column, window, windows


@given(
    source=windows(S),
    given=arrivals(),
    n=st.integers(1, 4),
    descending=st.booleans(),
    nulls_first=st.booleans(),
    grouped=st.booleans(),
)
def test_the_first_rows_are_those_that_sql_finds(source, given, n, descending, nulls_first, grouped):
    plan = Top(source[0], (Order(column("v"), descending, nulls_first),), n, (column("k", TEXT),) if grouped else ())
    order = f"v {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
    ties = "t NULLS FIRST, k NULLS FIRST, v NULLS FIRST"
    by = "PARTITION BY k " if grouped else ""
    sql = f"SELECT t, k, v FROM ({source[1]}) QUALIFY ROW_NUMBER() OVER ({by}ORDER BY {order}, {ties}) <= {n}"
    check(plan, sql, given)


@given(given=arrivals(), n=st.integers(1, 5))
def test_equal_rows_are_counted_each(given, n):
    source, sql = window(S, Range(9))
    plan = Top(Project(source, (("k", column("k", TEXT)),)), (), n)
    check(plan, f"SELECT k FROM ({sql}) ORDER BY k NULLS FIRST LIMIT {n}", given)


@given(given=arrivals())
def test_nothing_stays_in_the_state_when_all_rows_have_left(given):
    source, sql = window(S, Range(3))
    plan = Top(source, (Order(column("v")),), 1)
    store = check(plan, f"SELECT * FROM ({sql}) ORDER BY v NULLS FIRST, t, k NULLS FIRST LIMIT 1", given, [30])
    # What an evaluation notes of itself; of rows there is nothing.
    assert {kind for kind, _ in store.values} <= {"head", "operators", "queries"}
