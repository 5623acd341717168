"""ASOF joins: at any time, each left row with the nearest of the right rows that are there."""

import operator
import random
from collections import Counter
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.relations import as_of
from upstream.operators.relations.as_of import AsOfJoin
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import (
    AsOf,
    Join,
    Latest,
    Project,
    RowWindow,
    Stream,
    TimeRange,
    UnboundedWindow,
    WindowOver,
)
from upstream.operators.relations.plan.normalize import normalized
from upstream.operators.relations.zsets import TIME
from upstream.operators.state import key_runs
from upstream.operators.state.store import CountingStore, DictStore

from .checking import (
    END,
    LONG,
    TEXT,
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
@given(left=windows(S), right=windows(R), given=arrivals(12), few=st.booleans())
def test_each_row_meets_the_nearest_one(how, function, on, by, left, right, given, few):
    with buckets_of_few() if few else nullcontext():
        check(*_plan(left, right, how, function, on, by), given)


@contextmanager
def buckets_of_few():
    with patch.object(key_runs, "ROWS_OF_BUCKET", 1), patch.object(as_of, "ROWS_OF_ONE", 2):
        yield


STORED = Stream("stored", pa.schema([("j", TEXT), ("w", LONG)]), static=True)


@pytest.mark.parametrize("swapped", [False, True])
@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 5, None])), max_size=5),
    other=windows(S),
    given=arrivals(10),
)
@example(
    rows=[("a", 5)],
    other=window(S, TimeRange(9)),
    given=Arrivals(
        [({"s": [(1, "a", 1, 0, False)], "r": []}, 2), ({"s": [(20, "a", 0, 1, False)], "r": []}, END)],
        {"s": [(1, "a", 1, 0, False), (20, "a", 0, 1, False)], "r": []},
    ),
)
def test_a_stored_relation_meets_the_nearest_rows_as_they_come_and_leave(swapped, rows, other, given):
    """Of the left side, nothing is kept if the right one is stored."""
    values = ", ".join(f"({'NULL' if j is None else repr(j)}, {'NULL' if w is None else w})" for j, w in rows)
    sql = f"SELECT j, w FROM (VALUES {values}) AS x(j, w)" if rows else "SELECT '' AS j, 0 AS w WHERE false"
    stored = WindowOver(STORED, UnboundedWindow())
    sides = [(other[0], other[1], "v"), (stored, sql, "w")]
    (left, one, of), (right, two, value) = sides[::-1] if swapped else sides
    pair = (J, K) if swapped else (K, J)
    plan = Join(left, right, "left", (pair,), None, AsOf("ge", column(of), column(value)))
    text = f"""SELECT * EXCLUDE id FROM (SELECT *, ROW_NUMBER() OVER () AS id FROM ({one})) l LEFT JOIN ({two}) r
    ON k = j AND {of} >= {value} WHERE TRUE
    QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY {value} DESC NULLS LAST{", t NULLS FIRST" * swapped}) = 1"""
    found = {"stored": pl.DataFrame(rows, {"j": pl.Utf8, "w": pl.Int64}, orient="row")}
    store = check(plan, text, given, stored=found)
    kept = [each for each in running(plan, store) if isinstance(each, AsOfJoin)]
    assert swapped or kept[0]._rows.all().filter(~pl.col("__right")).height == 0


def running(plan, store):
    """Return the operators of a plan over its state."""
    return [each.operator for each in added({"q": plan}, store)._running.values()]


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


@pytest.mark.parametrize("function", SIGNS)
@given(seed=st.integers(0, 1 << 32))
def test_a_few_changes_of_a_large_key_change_the_matches_around_them(function, seed):
    chosen, store, sums = random.Random(seed), DictStore(), Counter()
    plan = Join(WindowOver(S, Latest()), WindowOver(R, Latest()), "left", (), None, AsOf(function, V, W))
    compare, nearest = getattr(operator, function), max if function in {"ge", "gt"} else min
    there = {"s": {}, "r": {}}
    with buckets_of_few():
        for time in range(12):
            given = {}
            for name, most in (("s", 60), ("r", 12)):
                keys = chosen.sample(range(most), most - 2 if time == 0 else chosen.randint(0, 2))
                given[name] = [(time, f"k{key}", chosen.randint(0, 40), time, chosen.random() < 0.3) for key in keys]
                for _, key, value, _, dead in given[name]:
                    there[name].pop(key, None)
                    if not dead:
                        there[name][key] = value
            evaluation = added({"q": plan}, store)
            for row in evaluation.step(frames(given), time + 1).changes["q"].select("k", "w", "__weight").rows():
                sums[row[:2]] += row[2]
            evaluation.save()
            values = [*there["r"].values()]
            expected = {
                (key, nearest((each for each in values if compare(value, each)), default=None)): 1
                for key, value in there["s"].items()
            }
            assert {row: count for row, count in sums.items() if count} == expected


def test_a_step_reads_the_rows_between_those_that_change_and_their_partners():
    n, read = 20_000, list[int]()
    plan, _ = _plan(window(S, TimeRange(10**6)), window(R, TimeRange(10**6)), "left", "ge", ON, "value")
    evaluation = added({"q": plan}, DictStore())
    lefts = [(1, "a", value, value, False) for value in range(n)]
    rights = [(1, "a", value, value, False) for value in (0, n // 2, n // 2 + 1_000)]
    evaluation.step({"s": frame(S, lefts), "r": frame(R, rights)}, 2)
    (rows,) = (each.operator._rows for each in evaluation._running.values() if isinstance(each.operator, AsOfJoin))
    changed = rows._changed

    def noted(*given):
        found = changed(*given)
        read.append(found[0].values.height)
        return found

    rows._changed = noted
    # Far behind its partner, and one from which others take their rows.
    for time, (side, value, moves) in enumerate((("s", n - 5, 1), ("r", n // 2 + 500, 1_001)), 3):
        stream = S if side == "s" else R
        given = {name: frame(each, []) for name, each in (("s", S), ("r", R))}
        given |= {side: frame(stream, [(time, "a", value, time, False)])}
        found = evaluation.step(given, time + 1).changes["q"]
        assert found.height == moves - (side == "r")
    assert max(read) < n / 5


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
