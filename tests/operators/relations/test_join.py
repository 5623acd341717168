"""Joins of every kind: at any time what SQL finds over both relations at that time."""

import functools
from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kit.continuous import EPOCH

from upstream.conf.errors import QueryRefusedError, SchemaError
from upstream.language import Catalog, bind
from upstream.operators.relations import join, physical_plan, zsets
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.join import JoinOperator, _met
from upstream.operators.relations.operator import Evaluable
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import (
    Join,
    Now,
    Project,
    RowWindow,
    Stream,
    TimeRange,
    UnboundedWindow,
    WindowOver,
)
from upstream.operators.relations.zsets import TIME, WEIGHT, Span, dtypes_of
from upstream.operators.state.store import CountingStore, DictStore

from .checking import (
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
    call,
    check,
    column,
    constant,
    frame,
    frames,
    window,
    windows,
)  # fmt: skip

ON = ((K, J),)
CONDITION = call("lt", V, W)
SQL = {
    how: f"SELECT * FROM ({{s}}) {how} JOIN ({{r}}) ON {{on}}"
    for how in ("inner", "left", "right", "full", "semi", "anti")
}
KINDS = tuple(SQL)


@pytest.mark.parametrize("on", [(), ON], ids=["no key", "one key"])
def test_a_join_of_too_many_pairs_fails_alone(on, monkeypatch):
    monkeypatch.setattr(zsets, "_MOST_GROWTH", 100)
    sides = WindowOver(S, TimeRange(1_000)), WindowOver(R, TimeRange(1_000))
    plans = {"all": Join(*sides, "inner", on), "any": Join(*sides, "semi", on), "few": sides[0]}
    evaluation = added(plans, DictStore())
    rows = [(1, "a", each, each, False) for each in range(11)]
    assert evaluation.step({"s": frame(S, rows), "r": frame(R, rows)}, 2).failed == {}
    more = [(2, "a", each, each, False) for each in range(11, 21)]
    assert list(evaluation.step({"s": frame(S, more), "r": frame(R, more)}, 3).failed) == ["all"]


def test_a_join_compares_pairs_in_parts_and_not_too_many(monkeypatch):
    monkeypatch.setattr(join, "_MANY", -1)
    monkeypatch.setattr(join, "_AT_ONCE", 7)
    sides = WindowOver(S, TimeRange(1_000)), WindowOver(R, TimeRange(1_000))
    rows = [(1, "a", each, each, False) for each in range(12)]
    streams = {"s": frame(S, rows), "r": frame(R, rows)}
    plans = {how: Join(*sides, how, ON, CONDITION) for how in ("inner", "semi")}
    found = added(plans, DictStore()).step(streams, 2).changes
    assert {how: each.height for how, each in found.items()} == {"inner": 66, "semi": 11}
    monkeypatch.setattr(join, "_MOST_PAIRS", 100)
    failed = added(plans, DictStore()).step(streams, 2).failed
    assert sorted(failed) == ["inner", "semi"]
    assert "compares 144 pairs" in str(failed["semi"])


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("on", ["k = j", "k = j AND v < w", "v < w"])
@given(left=windows(S), right=windows(R), given=arrivals(10), many=st.booleans())
def test_a_join_is_what_sql_finds(how, on, left, right, given, many):
    plan = Join(left[0], right[0], how, ON if "=" in on else (), CONDITION if "<" in on else None)
    with patch.object(join, "_MANY", -1 if many else join._MANY):  # pairs are found by their times
        check(plan, SQL[how].format(s=left[1], r=right[1], on=on), given)


@pytest.mark.parametrize("how", KINDS)
@given(left=windows(S), right=windows(R), given=arrivals(10), condition=st.sampled_from([None, CONDITION]))
def test_the_net_change_of_a_step_needs_the_pairs_before_and_after_it(how, left, right, given, condition):
    plan = Join(left[0], right[0], how, ON, condition)
    found: list[list[Counter[Any]]] = []
    for most in (-1, join._MANY):
        evaluation = Evaluation(DictStore())
        evaluation.add("q", plan, collapse=True)
        with patch.object(join, "_MANY", most):
            steps = [evaluation.step(frames(rows), bound).changes["q"] for rows, bound in given.steps]
        found.append([counted(each) for each in steps])
    assert found[0] == found[1]


def test_rows_of_one_key_meet_those_that_are_there_at_one_time(monkeypatch):
    n, made = 3_000, list[int]()
    pairs = JoinOperator._pairs

    def noted(*given: Any, **more: Any) -> pl.DataFrame:
        found = pairs(*given, **more)
        made.append(found.height)
        return found

    monkeypatch.setattr(JoinOperator, "_pairs", noted)
    evaluation = added({"q": Join(WindowOver(S, Now()), WindowOver(R, RowWindow(1, ("j",))), "left", ON)}, DictStore())
    rows = [(time, "a", time, time, False) for time in range(n)]
    found = evaluation.step({"s": frame(S, rows), "r": frame(R, rows)}, n + 9).changes["q"]
    assert found.height == 2 * n
    assert (found["u"] == found["t"]).all()
    assert sum(made) <= 3 * n


@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_a_change_costs_what_the_other_side_has_and_not_its_own(how):
    plan = Join(WindowOver(S, UnboundedWindow()), WindowOver(R, UnboundedWindow()), how, ON)
    store = CountingStore(DictStore())
    found, whole = 0, 0
    for at, size in enumerate([20_000, 1]):
        rows = frame(S, [(at, "a", value, value, False) for value in range(size)])
        before = store.written
        evaluation = added({"q": plan}, store)
        others = frame(R, [(0, "a", 1, 0, False)] if at == 0 else [])
        found = evaluation.step({"s": rows, "r": others}, at + 1).changes["q"].height
        evaluation.save()
        whole, cost = whole or store.written, store.written - before
    assert found
    assert cost < whole / 10


@pytest.mark.parametrize("how", KINDS)
@given(given=arrivals(8), on_left=st.booleans())
def test_a_condition_may_be_over_one_side(how, given, on_left):
    (left, left_sql), (right, right_sql) = window(S, TimeRange(9)), window(R, RowWindow(4))
    plan = Join(left, right, how, ON, call("lt", V if on_left else W, constant(2)))
    on = f"k = j AND {'v' if on_left else 'w'} < 2"
    check(plan, SQL[how].format(s=left_sql, r=right_sql, on=on), given)


@pytest.mark.parametrize("how", KINDS)
@given(given=arrivals(10))
def test_equal_rows_meet_as_often_as_they_are_there(how, given):
    (left, left_sql), (right, right_sql) = window(S, TimeRange(9)), window(R, RowWindow(4))
    plan = Join(Project(left, (("k", K),)), Project(right, (("j", J),)), how, ON)
    sql = SQL[how].format(s=f"SELECT k FROM ({left_sql})", r=f"SELECT j FROM ({right_sql})", on="k = j")
    check(plan, sql, given)


@pytest.mark.parametrize("correlated", [False, True])
@given(left=windows(S), right=windows(R), given=arrivals(10))
def test_not_in_with_nulls_is_what_sql_finds(correlated, left, right, given):
    plan = Join(left[0], right[0], "null_aware_anti", ((V, W), *ON) if correlated else ((V, W),))
    check(plan, not_in(left[1], right[1], correlated=correlated), given)


def not_in(left, right, k="k", v="v", j="j", w="w", *, correlated):
    """NOT IN, spelled out: no partner is equal, or unknown."""
    met = f"(b.{w} = a.{v} OR b.{w} IS NULL OR a.{v} IS NULL)" + (f" AND b.{j} = a.{k}" if correlated else "")
    return f"SELECT * FROM ({left}) a WHERE NOT EXISTS (SELECT 1 FROM ({right}) b WHERE {met})"


STORED = Stream("stored", pa.schema([("j", TEXT), ("w", LONG)]), static=True)
NAMED = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 5, None])), max_size=4)


def stored(rows):
    """Return a stored relation, its rows, and its SQL."""
    values = ", ".join(f"({'NULL' if j is None else repr(j)}, {'NULL' if w is None else w})" for j, w in rows)
    found = f"SELECT j, w FROM (VALUES {values}) AS x(j, w)" if rows else "SELECT '' AS j, 0 AS w WHERE false"
    frame = pl.DataFrame(rows, {"j": pl.Utf8, "w": pl.Int64}, orient="row")
    return WindowOver(STORED, UnboundedWindow()), {"stored": frame}, found


@pytest.mark.parametrize("how", KINDS)
@given(rows=NAMED, other=windows(S), given=arrivals(10), swapped=st.booleans(), conditional=st.booleans())
def test_a_join_with_a_stored_relation_is_what_sql_finds_and_keeps_one_side(
    how, rows, other, given, swapped, conditional
):
    relation, first, sql = stored(rows)
    condition = CONDITION if conditional else None
    on = "k = j AND v < w" if conditional else "k = j"
    sides = [(other[0], other[1]), (relation, sql)]
    left, right = sides[::-1] if swapped else sides
    pair = ON[0][::-1] if swapped else ON[0]
    plan = Join(left[0], right[0], how, (pair,), condition)
    store = check(plan, SQL[how].format(s=left[1], r=right[1], on=on), given, stored=first)
    kept = {kind.rpartition(".")[2] for kind, _ in store.values}
    assert ("right" if swapped else "left") not in kept


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("correlated", [False, True])
@given(rows=NAMED, other=windows(S), given=arrivals(10))
def test_not_in_a_stored_relation_is_what_sql_finds(correlated, swapped, rows, other, given):
    relation, first, sql = stored(rows)
    sides = [(other[0], other[1], "k", "v"), (relation, sql, "j", "w")]
    (left, left_sql, k, v), (right, right_sql, j, w) = sides[::-1] if swapped else sides
    on = ((column(v), column(w)), (column(k, TEXT), column(j, TEXT)))
    plan = Join(left, right, "null_aware_anti", on if correlated else on[:1])
    store = check(plan, not_in(left_sql, right_sql, k, v, j, w, correlated=correlated), given, stored=first)
    kept = {kind for kind, _ in store.values if kind.endswith("right" if swapped else "left")}
    assert all("unknown" in kind and swapped for kind in kept)


def test_a_null_excludes_rows_that_come_back_when_the_row_equal_to_them_leaves():
    relation, first, sql = stored([("a", 0)])
    plan = Join(relation, WindowOver(S, TimeRange(3)), "null_aware_anti", ((column("w"), column("v")),))
    text = not_in(sql, "SELECT t, k, v FROM s WHERE t <= $tau AND t > $tau - 3", "j", "w", "k", "v", correlated=False)
    rows = [(0, "a", None, 0, False), (17, "a", None, 1, False), (0, "a", 0, 2, False)]
    steps = [({"s": part, "r": []}, bound) for part, bound in (([], 0), (rows[:1], 0), (rows[1:], 1), ([], 40))]
    check(plan, text, Arrivals(steps, {"s": rows, "r": []}), stored=first)


def key(name, kind=TEXT):
    return Evaluable(lambda frame: frame[name], frozenset([name]), kind)


def side(name, *rows):
    return pl.DataFrame(rows, schema={name: pl.Float64, TIME: pl.Int64, WEIGHT: pl.Int64}, orient="row")


def test_floats_are_equal_as_in_spark():
    schemas = [pa.schema([(name, pa.float64())]) for name in "ab"]
    on = [(key("a", pa.float64()), key("b", pa.float64()))]
    operator = JoinOperator(
        pa.schema([*schemas[0], *schemas[1]]), *schemas, "inner", on, None, OperatorState.in_memory()
    )
    nan = float("nan")
    left = side("a", (nan, 1, 1), (0.0, 1, 1), (None, 1, 1))
    right = side("b", (-0.0, 2, 1), (nan, 3, 1), (None, 3, 1))
    assert operator.step([left, side("b")], Span.first(2)).height == 0
    found = operator.step([side("a"), right], Span(2, 4, 1))
    assert sorted(found.select(TIME, WEIGHT).rows()) == [(2, 1), (3, 1)]
    alone = pl.DataFrame({"key": [nan], "__left": [0]})
    in_order = pl.DataFrame({"key": [nan, nan], "__right": [0, 1]}).with_columns(pl.col("key").set_sorted())
    assert _met(alone, in_order, ["key"]).rows() == [(0, 0), (0, 1)]


def test_keys_of_different_types_are_refused():
    schemas = [pa.schema([("a", LONG)]), pa.schema([("b", TEXT)])]
    with pytest.raises(SchemaError, match="int64"):
        JoinOperator(schemas[0], *schemas, "semi", [(key("a", LONG), key("b"))], None, OperatorState.in_memory())


MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("e", MOMENT), ("t", MOMENT)])
CATALOG = Catalog({name: Stream(name, SCHEMA, event_time="t") for name in ("a", "b")})
MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)
CONDITIONS = (
    "a.t BETWEEN b.t - INTERVAL '2' MINUTES AND b.t + INTERVAL '3' MINUTES",
    "a.t BETWEEN b.t AND b.t + INTERVAL '1' MINUTES",
    "a.t BETWEEN b.t - INTERVAL '4' MINUTES AND b.t - INTERVAL '2' MINUTES",
    "a.t = b.t",
    "a.t >= b.t AND a.t < b.t + INTERVAL '2' MINUTES AND a.n < b.n",
    "b.t BETWEEN a.t AND a.e",
    "a.t < b.e + INTERVAL '2' MINUTES AND a.t >= b.t - INTERVAL '1' MINUTE",
    "b.t < a.e AND a.t < b.e",
)
WINDOWS = ("", "[RANGE 3 MINUTES]", "[RANGE 4 MINUTES SLIDE 2 MINUTES]", "[NOW]", "[ROWS 2]")
FORMS = (
    *(
        f"SELECT a.k, a.n, b.n AS m, a.t, b.t AS u FROM a {{a}} AS a {how} JOIN b {{b}} AS b ON a.k = b.k AND {{on}}"
        for how in ("", "LEFT", "RIGHT", "FULL")
    ),
    "SELECT a.n, a.t, b.t AS u FROM a {a} AS a JOIN b {b} AS b ON {on}",
    "SELECT k, n, t FROM a {a} AS a WHERE EXISTS (SELECT 1 FROM b {b} AS b WHERE a.k = b.k AND {on})",
    "SELECT k, n, t FROM a {a} AS a WHERE NOT EXISTS (SELECT 1 FROM b {b} AS b WHERE a.k = b.k AND {on})",
    "SELECT a.n, c.n AS m FROM a {a} AS a JOIN b {b} AS b ON a.k = b.k AND {on} JOIN a AS c ON c.k = b.k AND c.t = b.t",
)


def timed(rows):
    return pl.DataFrame(rows, schema=dtypes_of(SCHEMA), orient="row")


@functools.cache
def bounded(form, on):
    """The windows with which a query is not refused, as it is where rows of one side are needed for ever."""

    def is_bounded(left, right):
        try:
            bind(form.format(a=left, b=right, on=on), CATALOG)
        except QueryRefusedError:
            return False
        return True

    return [each for each in product(WINDOWS, WINDOWS) if is_bounded(*each)]


@st.composite
def steps(draw):
    """Rows of both streams by step, and the low-watermarks in minutes: none is late."""
    ends = [*sorted(draw(st.sets(st.integers(1, 15), min_size=1, max_size=5))), 40]
    begins = [0, *ends[:-1]]
    found: list[dict[str, list[tuple[Any, ...]]]] = [{"a": [], "b": []} for _ in ends]
    for stream in ("a", "b"):
        one = st.tuples(
            st.integers(0, 15),
            st.sampled_from(["x", "y", None]),
            st.integers(0, 2),
            st.sampled_from([None, -1, 0, 3, 9]),
        )
        for minute, k, n, length in draw(st.lists(one, max_size=8)):
            step = draw(st.sampled_from([at for at, begin in enumerate(begins) if begin <= minute]))
            end = None if length is None else EPOCH + timedelta(minutes=minute + length)
            found[step][stream].append((k, n, end, EPOCH + timedelta(minutes=minute)))
    return [
        ({name: timed(rows) for name, rows in each.items()}, START_US + end * MINUTE_US)
        for each, end in zip(found, ends, strict=True)
    ]


def running(store, plan, *, drops, collapse):
    evaluation = Evaluation(store)
    if drops:
        evaluation.add("q", plan, collapse=collapse)
    else:
        with patch.object(physical_plan, "needed_of", lambda _: (None, None)):
            evaluation.add("q", plan, collapse=collapse)
    return evaluation


def counted(changes):
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in changes.rows():
        found[tuple(row)] += weight
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("form", FORMS)
@given(
    on=st.sampled_from(CONDITIONS), draw=st.data(), given_steps=steps(), collapse=st.booleans(), restarts=st.booleans()
)
def test_what_is_dropped_is_not_missed(form, on, draw, given_steps, collapse, restarts):
    assume(bounded(form, on))
    left, right = draw.draw(st.sampled_from(bounded(form, on)))
    plan = shareable(bind(form.format(a=left, b=right, on=on), CATALOG).plan)
    mine, other = DictStore(), DictStore()
    dropping = running(mine, plan, drops=True, collapse=collapse)
    keeping = running(other, plan, drops=False, collapse=collapse)
    for rows, until in given_steps:
        found, expected = dropping.step(rows, until), keeping.step(rows, until)
        assert not found.failed
        assert counted(found.changes["q"]) == counted(expected.changes["q"])
        assert dropping.rows_kept <= keeping.rows_kept
        dropping.save()
        keeping.save()
        if restarts:
            dropping = running(mine, plan, drops=True, collapse=collapse)
            keeping = running(other, plan, drops=False, collapse=collapse)


@pytest.mark.parametrize("form", FORMS[:7])
def test_rows_are_kept_for_twice_the_interval_at_most(form):
    plan = shareable(bind(form.format(a="", b="", on=CONDITIONS[0]), CATALOG).plan)
    evaluation = running(DictStore(), plan, drops=True, collapse=False)
    kept: list[int] = []
    for minute in range(30):
        row = timed([("x", minute, None, EPOCH + timedelta(minutes=minute))])
        # The keys of today do not come again tomorrow.
        row = row.with_columns(pl.lit(f"x{minute // 3}").alias("k"))
        evaluation.step({"a": row, "b": row}, START_US + minute * MINUTE_US + 1)
        kept.append(evaluation.rows_kept)
    assert max(kept[10:]) <= 2 * 2 * 4
    evaluation.step({}, START_US + 60 * MINUTE_US)
    assert evaluation.rows_kept == 0


def test_rows_are_kept_until_the_times_that_they_name():
    plan = shareable(bind(FORMS[0].format(a="", b="", on="b.t BETWEEN a.t AND a.e"), CATALOG).plan)
    evaluation = running(DictStore(), plan, drops=True, collapse=False)
    nothing = timed([])
    ends = [EPOCH + timedelta(minutes=minutes) for minutes in (5, 50)]
    evaluation.step({"a": timed([("x", 1, end, EPOCH) for end in (*ends, None)]), "b": nothing}, START_US + 1)
    for minute, kept in ((4, 2), (6, 1), (49, 1), (51, 0)):
        evaluation.step({"a": nothing, "b": nothing}, START_US + minute * MINUTE_US)
        assert evaluation.rows_kept == kept, minute


def test_a_query_that_begins_where_rows_were_dropped_is_not_said_to_be_whole():
    sql = FORMS[0].format(a="", b="", on=CONDITIONS[0])
    plan = shareable(bind(sql, CATALOG).plan)
    counts = shareable(bind(f"SELECT COUNT(*) AS c FROM ({sql}) AS j", CATALOG).plan)
    evaluation = running(DictStore(), plan, drops=True, collapse=False)
    row = timed([("x", 1, None, EPOCH)])
    evaluation.step({"a": row, "b": row}, START_US + MINUTE_US)
    evaluation.step({}, START_US + 30 * MINUTE_US)
    evaluation.add("counts", counts)
    evaluation.step({}, START_US + 31 * MINUTE_US)
    assert evaluation.complete_from("counts") is None


def renamed(node):
    """Return a relation with other names, and its key under its new name."""
    names = {each.name: f"{each.name}_{each.name}" for each in node.schema}
    columns = tuple((names[each.name], column(each.name, each.type)) for each in node.schema)
    return Project(node, columns), column(names["k"], TEXT)


def two_joins(left, right, hows):
    """Return two joins of one input by one key, under its names and under others."""
    other, other_key = renamed(left)
    swapped = Join(right, other, hows[1], ((J, other_key),))
    return {"one": Join(left, right, hows[0], ON), "two": swapped}


@pytest.mark.parametrize(("left", "kept"), [(TimeRange(1_000), 10), (RowWindow(9, ("k",)), 5), (RowWindow(9), 10)])
def test_joins_of_one_input_by_one_key_keep_its_rows_once_or_read_them_below(left, kept):
    plans = two_joins(WindowOver(S, left), WindowOver(R, TimeRange(1_000)), ("inner", "left"))
    rows = {"s": frame(S, [(1, "a", each, each, False) for each in range(5)]), "r": frame(R, [])}
    for some in (plans, {"one": plans["one"]}):
        evaluation = added(some, DictStore())
        evaluation.step(rows, 2)
        assert evaluation.rows_kept == kept
        evaluation.save()
        found = [each for each in evaluation.figures() if each.beside]
        assert all(each.bytes == 0 for each in found if "two" not in each.queries), "joins keep nothing themselves"


_SHARED = (
    TimeRange(3),
    TimeRange(7),
    RowWindow(1, ("k",)),
    RowWindow(2, ("k",)),
    RowWindow(3, ("k",), slide=2),
    RowWindow(3),
    Now(),
)


@given(
    kind=st.sampled_from(_SHARED),
    right=windows(R),
    hows=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    given=arrivals(12),
    collapses=st.tuples(st.booleans(), st.booleans()),
    begins=st.integers(0, 4),
)
def test_joins_that_share_rows_find_what_each_finds_with_its_own(kind, right, hows, given, collapses, begins):
    plans = two_joins(WindowOver(S, kind), right[0], hows)
    together = Evaluation(DictStore())
    alone = {name: Evaluation(DictStore()) for name in plans}
    for (name, plan), collapse in zip(plans.items(), collapses, strict=True):
        together.add(name, plan, collapse=collapse)
        with (
            patch.object(physical_plan, "_side", lambda node, at, *_: (node.inputs[at], [])),
            patch.object(join, "_reader_of", lambda *_: None),
        ):
            alone[name].add(name, plan, collapse=collapse)
    later = Evaluation(DictStore())
    later.add("one", plans["one"])
    sums: list[Counter[tuple[Any, ...]]] = [Counter(), Counter()]
    retained = not isinstance(right[0].window, UnboundedWindow)
    for number, (rows, until) in enumerate(given.steps):
        if number == begins:
            later.add("two", plans["two"])
        found, late = together.step(frames(rows), until), later.step(frames(rows), until)
        for name, each in alone.items():
            assert counted(found.changes[name]) == counted(each.step(frames(rows), until).changes[name])
        for total, changes in zip(sums, (found.changes["two"], late.changes.get("two")), strict=True):
            for *row, _, weight in [] if changes is None else changes.rows():
                total[tuple(row)] += weight
        if number >= begins and retained:
            one, other = ({row: n for row, n in total.items() if n} for total in sums)
            assert one == other
