"""ASOF joins: at any time, each left row with the nearest of the right rows that are there."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.relations import as_of
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import AsOf, Join, Project, RowWindow, TimeRange, UnboundedWindow
from upstream.operators.relations.plan.normalize import normalized
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import CountingStore, DictStore

from .checking import (
    END,
    Arrivals,
    J,
    K,
    R,
    S,
    V,
    W,
    added,
    arrivals,
    at,
    check,
    column,
    frame,
    frames,
    window,
    windows,
)

SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
ON = ((K, J),)
BY = {"time": (column("t"), column("u")), "value": (V, W)}
# Each left row with its nearest partner; of equal ones, with the first in the order of all columns.
SQL = """SELECT l.t, l.k, l.v, r.u, r.j, r.w FROM (SELECT *, ROW_NUMBER() OVER () AS id FROM ({s})) l
{how} JOIN ({r}) r ON {on} {left} {sign} {right} WHERE TRUE
QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY {right} {order} NULLS LAST, u, j NULLS FIRST, w NULLS FIRST) = 1"""


def _plan(left, right, how, function, on, by):
    one, two = BY[by]
    sql = SQL.format(
        s=left[1], r=right[1], how=how, on="k = j AND" if on else "", left=one.name, right=two.name,
        sign=SIGNS[function], order="DESC" if function in {"ge", "gt"} else "ASC",
    )  # fmt: skip
    return Join(left[0], right[0], how, on, None, AsOf(function, one, two)), sql


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("function", SIGNS)
@pytest.mark.parametrize("on", [(), ON], ids=["no key", "one key"])
@pytest.mark.parametrize("by", BY)
@given(left=windows(S), right=windows(R), given=arrivals(12))
def test_each_row_meets_the_nearest_one(how, function, on, by, left, right, given):
    check(*_plan(left, right, how, function, on, by), given)


@pytest.mark.parametrize("function", ["ge", "lt"])
@given(given=arrivals(14), most=st.integers(1, 4))
def test_rows_that_change_much_are_taken_in_parts(function, given, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(as_of, "_MOST", most)
        left, right = window(S, TimeRange(9)), window(R, TimeRange(7))
        check(*_plan(left, right, "left", function, ON, "time"), given)


@pytest.mark.parametrize("function", SIGNS)
@given(left=windows(S), right=windows(R), given=arrivals(12))
def test_the_net_change_of_a_step_is_that_of_all_its_times(function, left, right, given):
    plan, _ = _plan(left, right, "left", function, ON, "value")
    each, net = added({"q": plan}, DictStore()), added({}, DictStore())
    net.add("q", plan, collapse=True)
    found = [], []
    for rows, bound in given.steps:
        for evaluation, changes in zip((each, net), found, strict=True):
            changes.append(evaluation.step(frames(rows), bound).changes["q"])
        assert at(pl.concat(found[0]), HIGHEST) == at(pl.concat(found[1]), HIGHEST)


def test_of_equal_rows_the_first_in_the_order_of_all_columns_counts():
    plan, sql = _plan(window(S, TimeRange(9)), window(R, TimeRange(9)), "inner", "ge", ON, "value")
    rights = [(2, "a", 1, 0, False), (1, "a", 1, 1, False), (3, "a", 1, 2, False)]
    given = Arrivals([({"s": [(4, "a", 2, 3, False)], "r": rights}, END)], {"s": [(4, "a", 2, 3, False)], "r": rights})
    check(plan, sql, given)


@given(given=arrivals(10))
def test_a_shareable_plan_takes_the_same_of_equal_rows(given):
    left, right = window(S, TimeRange(9)), window(R, RowWindow(4))
    plan, sql = _plan(left, right, "left", "ge", ON, "value")
    check(shareable(normalized(Project(plan, tuple((each, column(each)) for each in ("t", "u")))))
          , f"SELECT t, u FROM ({sql})", given)  # fmt: skip


def test_a_step_of_many_rows_of_one_key_costs_little_more_than_their_order():
    n = 20_000
    plan, _ = _plan(window(S, TimeRange(2)), window(R, UnboundedWindow()), "left", "ge", ON, "time")
    evaluation = added({"q": plan}, DictStore())
    rows = [(time, "a", time, time, False) for time in range(n)]
    found = evaluation.step({"s": frame(S, rows), "r": frame(R, rows)}, n + 9).changes["q"]
    assert found.height == 2 * n
    assert (found["u"] == found["t"]).all()


def test_a_change_writes_only_itself():
    plan, _ = _plan(window(S, TimeRange(10**6)), window(R, TimeRange(10**6)), "left", "ge", ON, "time")
    store, costs = CountingStore(DictStore()), []
    for moment, size in enumerate([20_000, 1]):
        before = store.written
        evaluation = added({"q": plan}, store)
        rows = [(moment, "a", value, value, False) for value in range(size)]
        found = evaluation.step({"s": frame(S, rows), "r": frame(R, rows[:1])}, moment + 1).changes["q"]
        evaluation.save()
        costs.append(store.written - before)
    assert found.filter(found[TIME] == 1).height == 1
    assert costs[1] < costs[0] / 10
