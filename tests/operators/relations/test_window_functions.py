"""Window functions: at any time the columns that SQL finds, for rows that come and leave."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.plan.aggregates import RANKS
from upstream.operators.relations.plan.nodes import (
    Aggregation,
    Frame,
    Latest,
    Order,
    Project,
    TimeRange,
    UnboundedWindow,
    WindowFunction,
    WindowFunctions,
    WindowOver,
)
from upstream.operators.relations.window_functions import WindowFunctionsOperator
from upstream.operators.state import key_runs
from upstream.operators.state.store import CountingStore, DictStore

from .checking import LARGE, LONG, K, S, T, V, added, arrivals, check, frame, rows_of_s, window, windows

WHOLE = Frame(start=None, end=None)
NUMBERED = {"ntile": 3, "lag": 1, "lead": 2, "nth_value": 2}


RUNNING = Frame()


def function(name, *arguments, frame=RUNNING, kind=None, number=0, where=None, label="f"):
    kind = RANKS.get(name, kind or (arguments[0].type if arguments else LONG))
    return WindowFunction(Aggregation(label, name, arguments, kind, where=where), frame, number)


def over(source, *functions, descending=False, nulls_first=True, grouped=True, keys=(V,)):
    """Return a plan, and the SQL of its functions; each has its frame in SQL."""
    order = tuple(Order(key, descending, nulls_first) for key in keys)
    return WindowFunctions(source, order, (K,) if grouped else (), functions)


def sql_of(name, frame="", *, descending=False, nulls_first=True, grouped=True, ties=True):
    order = f"v {'DESC' if descending else ''} NULLS {'FIRST' if nulls_first else 'LAST'}"
    order += ", t NULLS FIRST, k NULLS FIRST" if ties else ""
    return f"{name} OVER ({'PARTITION BY k ' if grouped else ''}ORDER BY {order} {frame})"


SHAPES = {"descending": st.booleans(), "nulls_first": st.booleans(), "grouped": st.booleans()}


@pytest.mark.parametrize("name", ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"])
@given(source=windows(S), given=arrivals(), **SHAPES)
def test_a_rank_is_what_sql_finds(name, source, given, **shape):
    plan = over(source[0], function(name, number=NUMBERED.get(name, 0)), **shape)
    sql = sql_of(f"{name}({NUMBERED.get(name, '')})", ties=name in {"row_number", "ntile"}, **shape)
    check(plan, f"SELECT t, k, v, {sql} FROM ({source[1]})", given)


@pytest.mark.parametrize("default", [False, True], ids=["", "default"])
@pytest.mark.parametrize("name", ["lag", "lead"])
@given(source=windows(S), given=arrivals(), **SHAPES)
def test_a_row_before_or_behind_is_what_sql_finds(name, default, source, given, **shape):
    number = NUMBERED[name]
    plan = over(source[0], function(name, T, *([V] if default else []), number=number), **shape)
    sql = sql_of(f"{name}(t, {number}{', v' if default else ''})", **shape)
    check(plan, f"SELECT t, k, v, {sql} FROM ({source[1]})", given)


ROWS = {
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW": Frame("rows", -1, 0),
    "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING": Frame("rows", -2, -1),
    "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING": Frame("rows", 1, 3),
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING": Frame("rows", 0, None),
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING": Frame("rows", None, -1),
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING": WHOLE,
}
RANGES = {
    "": Frame(),
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING": Frame("range", 0, None),
    "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING": Frame("range", -1, 1),
    "RANGE BETWEEN 3 PRECEDING AND 2 PRECEDING": Frame("range", -3, -2),
    "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING": Frame("range", None, 1),
}
SUM = function("sum", T, label="sum")
COUNT = function("count", V, label="count", kind=LONG)
LEAST = function("min", T, label="min", where=LARGE)
MEAN = function("avg", T, label="avg")


@pytest.mark.parametrize("frame", [*ROWS, *RANGES])
@given(source=windows(S), given=arrivals(), **SHAPES)
def test_an_aggregate_of_a_frame_is_what_sql_finds(frame, source, given, **shape):
    found = {**ROWS, **RANGES}[frame]
    functions = [WindowFunction(each.call, found) for each in (SUM, COUNT, LEAST)]
    sqls = ["sum(t)", "count(v)", "min(t) FILTER (WHERE v > 1)"]
    columns = ", ".join(sql_of(each, frame, ties=frame in ROWS, **shape) for each in sqls)
    check(over(source[0], *functions, **shape), f"SELECT t, k, v, {columns} FROM ({source[1]})", given)


@pytest.mark.parametrize("frame", [*ROWS])
@pytest.mark.parametrize(("name", "written"), [("first_value", "t"), ("last_value", "t"), ("nth_value", "t, 2")])
@given(source=windows(S), given=arrivals(), **SHAPES)
def test_a_value_of_a_frame_is_what_sql_finds(name, written, frame, source, given, **shape):
    plan = over(source[0], function(name, T, frame=ROWS[frame], number=NUMBERED.get(name, 0)), **shape)
    check(plan, f"SELECT t, k, v, {sql_of(f'{name}({written})', frame, **shape)} FROM ({source[1]})", given)


@given(given=arrivals())
def test_each_copy_of_a_row_is_a_row(given):
    source, sql = window(S, TimeRange(9))
    plan = Project(source, (("k", K),))
    functions = (
        function("row_number", label="n"),
        function("lag", K, number=2, label="l"),
        function("count", label="c"),
    )
    made = WindowFunctions(plan, (Order(K),), (), functions)
    order = "OVER (ORDER BY k NULLS FIRST)"
    check(made, f"SELECT k, row_number() {order}, lag(k, 2) {order}, count(*) {order} FROM ({sql})", given)


@given(given=arrivals())
def test_the_sum_of_a_whole_partition_needs_no_order(given):
    source, sql = window(S, TimeRange(9))
    plan = WindowFunctions(source, (), (K,), (function("sum", V, frame=WHOLE),))
    check(plan, f"SELECT t, k, v, sum(v) OVER (PARTITION BY k) FROM ({sql})", given)


def _near(values, at, start, end):
    found = values[max(at + start, 0) : max(at + end + 1, 0)]
    return sum(found) if found else None


NEAR = {
    "lag": (function("lag", T, number=2), lambda values, at: values[at - 2] if at >= 2 else None),
    "lead": (function("lead", T, number=3), lambda values, at: values[at + 3] if at + 3 < len(values) else None),
    "behind": (function("sum", T, frame=Frame("rows", -3, -1)), lambda values, at: _near(values, at, -3, -1)),
    "around": (function("sum", T, frame=Frame("rows", -2, 1)), lambda values, at: _near(values, at, -2, 1)),
    "ahead": (function("sum", T, frame=Frame("rows", 1, 2)), lambda values, at: _near(values, at, 1, 2)),
    "own": (function("sum", T, frame=Frame("rows", 0, 0)), lambda values, at: values[at]),
}


@pytest.mark.parametrize("name", NEAR)
@given(seed=st.integers(0, 1 << 32))
def test_a_few_changes_of_a_large_partition_change_the_rows_near_them(name, seed):
    made, expected = NEAR[name]
    chosen, there, sums = random.Random(seed), {}, Counter()
    plan = over(WindowOver(S, Latest()), made, grouped=False)
    store = DictStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
        for time in range(12):
            keys = chosen.sample(range(90), 80 if time == 0 else chosen.randint(1, 3))
            rows = [(time, f"k{key:02}", chosen.randint(0, 30), time, chosen.random() < 0.3) for key in keys]
            evaluation = added({"q": plan}, store)
            for *row, weight in evaluation.step({"s": frame(S, rows)}, time + 1).changes["q"].drop("__time").rows():
                sums[tuple(row)] += weight
            evaluation.save()
            for at, key, value, _, dead in rows:
                there.pop(key, None)
                if not dead:
                    there[key] = (value, at, key)
            values = [at for _, at, _ in sorted(there.values())]
            wanted = [(at, key, v, expected(values, n)) for n, (v, at, key) in enumerate(sorted(there.values()))]
            assert Counter({row: count for row, count in sums.items() if count}) == Counter(wanted)


def test_a_step_reads_the_rows_near_those_that_change():
    store = CountingStore(DictStore())
    evaluation = added({"q": over(WindowOver(S, Latest()), function("lag", V, number=1), grouped=False)}, store)
    rows = [(1, f"k{n}", n, n, False) for n in range(20_000)]
    evaluation.step({"s": frame(S, rows)}, 2)
    evaluation.save()
    operator = next(each.operator for each in evaluation._running.values() if hasattr(each.operator, "_near"))
    read = []
    changes = operator._changes
    operator._changes = lambda rows: read.append(rows.rows.height) or changes(rows)
    found = evaluation.step({"s": frame(S, [(3, "k700", 700, 20_000, True)])}, 4).changes["q"]
    assert sorted(found.select("k", "f", "__weight").rows()) == [("k700", 699, -1), ("k701", 699, 1), ("k701", 700, -1)]
    assert max(read) < 1_000


def test_state_is_the_rows_before_the_next_one_where_rows_come_in_their_order():
    store = DictStore()
    plan = over(WindowOver(S, UnboundedWindow()), function("lag", V, number=2), keys=(T,))
    evaluation = added({"q": plan}, store)
    found = [evaluation.step(rows_of_s(*range(at, at + 5)), at + 5).changes["q"] for at in range(0, 20, 5)]
    assert [row[3] for each in found for row in each.sort("t").rows()] == [None, None, *range(18)]
    operator = next(each for each in evaluation._running.values() if isinstance(each.operator, WindowFunctionsOperator))
    assert operator.state.rows == 2
    evaluation.add("later", plan)
    evaluation.step(rows_of_s(20), 21)
    assert evaluation.complete_from("q") is not None
    assert evaluation.complete_from("later") is None
