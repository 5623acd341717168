"""Rewriting keeps the meaning and brings conditions down."""

import pytest
from kit.continuous import CATALOG, QUOTE, TRADE, bound, only, relation

from upstream.expressions.zones import in_zone
from upstream.language import bind
from upstream.operators.relations.plan.nodes import Join, Now, Project, RowWindow, Where, WindowOver, walk
from upstream.operators.relations.plan.normalize import rewriter
from upstream.operators.relations.plan.periods import partners_of

A, B = "trade [NOW] a", "quote [NOW] b"


def test_subqueries_merge_into_one_condition_and_one_projection():
    inner = "SELECT sym AS b, n FROM (SELECT * FROM trade [NOW] WHERE px > 1) WHERE n > 2"
    nested = relation(f"SELECT b AS c FROM ({inner}) WHERE b = 'a'")
    flat = relation("SELECT sym AS c FROM trade [NOW] WHERE px > 1 AND n > 2 AND sym = 'a'")
    assert nested == flat
    assert isinstance(nested, Project)
    assert isinstance(nested.source, Where)
    assert nested.source.source == WindowOver(TRADE, Now())


def test_commas_and_joins_are_one_plan():
    comma = relation(f"SELECT bid FROM {A}, {B} WHERE a.sym = b.sym AND bid > 1 AND n > 2 AND px < bid")
    join = relation(f"SELECT bid FROM {A} JOIN {B} ON a.sym = b.sym AND px < bid AND bid > 1 AND n > 2")
    assert comma == join
    made = only(comma, Join)
    assert len(made.on) == 1
    assert str(made.condition) == "(px < bid)"
    assert isinstance(made.left, Where)
    assert made.left.source == WindowOver(TRADE, Now())
    assert any(isinstance(each, Where) for each in walk(made.right))
    assert WindowOver(QUOTE, Now()) in set(walk(made.right))


def test_conditions_stay_above_the_padded_side_of_outer_joins():
    plan = relation(f"SELECT a.sym FROM {A} LEFT JOIN {B} ON a.sym = b.sym WHERE b.bid > 1 AND a.n > 2")
    where = plan.source
    assert isinstance(where, Where)
    assert str(where.condition) == "(bid > 1.0)"
    assert str(where.source.left.condition) == "(n > 2)"
    right = relation(f"SELECT b.bid FROM {A} RIGHT JOIN {B} ON a.sym = b.sym WHERE a.n > 2")
    assert isinstance(right.source, Where)
    full = relation(f"SELECT b.bid FROM {A} FULL JOIN {B} ON a.sym = b.sym WHERE a.n > 2 AND b.bid > 1")
    assert isinstance(full.source, Where)
    assert isinstance(full.source.source, Join)


def test_conditions_with_constants_that_are_computed_move_below_joins_and_into_windows():
    plan = relation(f"SELECT bid FROM {A} JOIN {B} ON a.sym = b.sym WHERE bid > 0.5 AND n * 1 = n AND px * 2 < 1 / 4")
    assert isinstance(plan.source, Where)
    assert str(plan.source.condition) == "((n * 1) = n)", "whole numbers can overflow"
    conditions = {str(each.condition) for each in walk(only(plan, Join)) if isinstance(each, Where)}
    assert conditions == {"(bid > 0.5)", "((px * 2.0) < 0.25)"}
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY t DESC) AS r FROM trade [RANGE UNBOUNDED]"
    newest = only(relation(f"SELECT px FROM ({ranked}) AS x WHERE r <= 1 + 1 AND 1 = 1"), WindowOver)
    assert newest.window == RowWindow(2, ("sym",))
    assert only(relation(f"SELECT bid FROM {A} JOIN {B} ON a.sym = b.sym AND 2 > 1"), Join).condition is None


def test_constants_that_fail_stay_above_joins():
    guarded = "CASE WHEN n > 1 THEN 1 / 0 ELSE 2 + 3 END"
    plan = relation(f"SELECT bid FROM {A} JOIN {B} ON a.sym = b.sym WHERE {guarded} > 4")
    assert str(plan.source.condition) == "((CASE WHEN (n > 1) THEN (1.0 / 0.0) ELSE 5.0 END) > 4.0)"


def test_conditions_that_can_fail_do_not_move_below_a_join():
    plan = relation("SELECT a.sym FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym WHERE 10 / a.n > 2")
    assert isinstance(plan.source, Where)
    assert isinstance(plan.source.source, Join)
    guarded = relation("SELECT sym FROM trade [NOW] WHERE n <> 0 AND 10 / n > 2")
    assert str(guarded.source.condition).startswith("((n <> ")


def test_conditions_on_the_left_of_in_and_exists_move_to_the_left():
    inner = "SELECT * FROM trade [NOW] WHERE sym IN (SELECT sym FROM quote [NOW])"
    plan = relation(f"SELECT sym FROM ({inner}) x WHERE n > 2")
    semi = only(plan, Join)
    assert semi.how == "semi"
    assert isinstance(semi.left, Where)


def test_what_is_computed_is_not_computed_twice():
    plan = bound("SELECT y + y AS z FROM (SELECT px * 2 AS y FROM trade [NOW]) x").plan.source
    assert isinstance(plan, Project)
    assert isinstance(plan.source, Project)
    once = bound("SELECT y + 1 AS z FROM (SELECT px * 2 AS y FROM trade [NOW]) x").plan.source
    assert isinstance(once.source, WindowOver)


def test_projections_of_all_columns_vanish():
    assert relation("SELECT sym, px, n, t FROM trade [NOW]") == WindowOver(TRADE, Now())
    assert isinstance(relation("SELECT px, sym, n, t FROM trade [NOW]"), Project)


DAY_US = 86_400_000_000
BERLIN = CATALOG.in_zone("Europe/Berlin")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT HOUR(t) AS h FROM trade [NOW]",
        "SELECT sym FROM trade [NOW] WHERE HOUR(t) = 3",
        "SELECT HOUR(t) AS h, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY HOUR(t)",
        "SELECT sym, MAX(HOUR(t)) AS h FROM trade [RANGE 1 HOUR] GROUP BY sym",
        "SELECT sym, COUNT(*) FILTER (WHERE HOUR(t) = 3) AS h FROM trade [RANGE 1 HOUR] GROUP BY sym",
        "SELECT a.sym FROM trade [NOW] a JOIN quote [NOW] b ON HOUR(a.t) = HOUR(b.t)",
        "SELECT a.sym FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym AND HOUR(a.t) = 3",
        "SELECT sym, t FROM trade [RANGE 1 HOUR] ORDER BY HOUR(t) LIMIT 3",
        "SELECT COUNT(*) AS n FROM trade [PARTITION BY sym ROWS 2 WHERE HOUR(t) = 3]",
        "SELECT sym FROM trade [NOW] WHERE t IN (SELECT t FROM quote [NOW] WHERE HOUR(t) = 3)",
        "SELECT sym, CAST(t AS STRING) AS c FROM trade [NOW] UNION SELECT sym, CAST(t AS STRING) FROM quote [NOW]",
        "WITH w AS (SELECT HOUR(t) AS h FROM trade [RANGE 1 HOUR]) SELECT h FROM w EMIT CHANGES",
    ],
)
def test_wherever_it_stands(text):
    plan, utc = bind(text, BERLIN).plan, bind(text, CATALOG).plan
    assert "local_time(" in str(plan).replace("function='local_time'", "local_time(")
    assert "local_time" not in str(utc)
    assert plan.schema == utc.schema
    assert bind(text, CATALOG.in_zone("UTC")).plan == utc


def test_a_view_has_the_zone_of_the_query_that_names_it():
    catalog = BERLIN.with_view("hours", "SELECT HOUR(timestamp) AS h, vehicle_id FROM LATEST(buses)")
    plan = bind("SELECT h, COUNT(*) AS n FROM hours GROUP BY h", catalog).plan
    assert "local_time" in str(plan)


def test_what_has_no_time_is_the_same_object():
    plan = bind("SELECT sym, MAX(px) AS hi FROM trade [RANGE 1 HOUR] GROUP BY sym", CATALOG).plan
    assert rewriter(lambda each: in_zone(each, "Europe/Berlin"))(plan) is plan


def test_a_day_of_a_zone_bounds_a_join_with_room_for_what_clocks_are_set():
    condition = "a.t BETWEEN b.t AND b.t + INTERVAL '2' DAY"
    text = f"SELECT a.px FROM trade a JOIN quote b ON a.sym = b.sym AND {condition}"
    plan = bind(text, BERLIN).plan
    assert "add_interval_in_zone" in str(plan)
    (join,) = (each for each in walk(plan) if isinstance(each, Join))
    right = next(name for name in join.right.schema.names if name.rpartition(".")[2] == "t")
    found = partners_of(join, frozenset({"t"}), frozenset({right}))
    assert found == (("t", 0), (right, 3 * DAY_US)), "a day of a zone has up to 48 hours"
