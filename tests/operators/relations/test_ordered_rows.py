"""The first rows of an order: at any time those that SQL finds."""

from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.ordered_rows import TopRows
from upstream.operators.relations.plan.nodes import Order, Project, TimeRange, Top, UnboundedWindow, WindowOver
from upstream.operators.state.store import DictStore

from .checking import K, S, V, added, arrivals, check, rows_of_s, window, windows


@given(
    source=windows(S),
    given=arrivals(),
    n=st.integers(1, 4),
    descending=st.booleans(),
    nulls_first=st.booleans(),
    grouped=st.booleans(),
)
def test_the_first_rows_are_those_that_sql_finds(source, given, n, descending, nulls_first, grouped):
    plan = Top(source[0], (Order(V, descending, nulls_first),), n, (K,) if grouped else ())
    order = f"v {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
    ties = "t NULLS FIRST, k NULLS FIRST, v NULLS FIRST"
    by = "PARTITION BY k " if grouped else ""
    sql = f"SELECT t, k, v FROM ({source[1]}) QUALIFY ROW_NUMBER() OVER ({by}ORDER BY {order}, {ties}) <= {n}"
    check(plan, sql, given)


@given(given=arrivals(), n=st.integers(1, 5))
def test_equal_rows_are_counted_each(given, n):
    source, sql = window(S, TimeRange(9))
    plan = Top(Project(source, (("k", K),)), (), n)
    check(plan, f"SELECT k FROM ({sql}) ORDER BY k NULLS FIRST LIMIT {n}", given)


def test_state_is_the_first_rows_alone_where_no_row_leaves():
    kept = {}
    for source in (WindowOver(S, UnboundedWindow()), WindowOver(S, TimeRange(100))):
        store = DictStore()
        evaluation = added({"q": Top(source, (Order(V, descending=True),), 2)}, store)
        for begin in range(0, 30, 10):
            evaluation.step(rows_of_s(*range(begin, begin + 10)), begin + 10)
        changes = evaluation.step(rows_of_s(30), 31).changes["q"]
        assert sorted(changes["v"]) == [28, 30]
        top = next(each for each in evaluation._running.values() if isinstance(each.operator, TopRows))
        kept[source.window] = top.state.rows
    assert kept == {UnboundedWindow(): 2, TimeRange(100): 31}
