"""OVER and QUALIFY: what a query with window functions becomes."""

import pytest
from kit.continuous import BUSES, below, only, relation
from kit.refusals import refusals

from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.nodes import Top, Where


def windows(sql: str) -> list[object]:
    return [each.window for each in nodes.walk(relation(sql)) if isinstance(each, nodes.WindowOver)]


def test_a_frame_of_rows_is_the_newest_rows_that_fulfil_the_condition():
    plan = relation("SELECT SUM(n) OVER (PARTITION BY sym, n ORDER BY t ROWS 3 PRECEDING) AS s FROM trade WHERE px > 1")
    now, rows, _ = windows("SELECT SUM(n) OVER (PARTITION BY sym, n ORDER BY t ROWS 3 PRECEDING) AS s FROM trade")
    assert (now, rows) == (nodes.Now(), nodes.RowWindow(4, ("sym", "n")))
    kept = next(
        each.window
        for each in nodes.walk(plan)
        if isinstance(each, nodes.WindowOver) and isinstance(each.window, nodes.RowWindow)
    )
    assert str(kept.where) == "(px > 1.0)"
    sql = "SELECT SUM(n) OVER (ORDER BY t ROWS BETWEEN {} AND CURRENT ROW) AS s FROM trade"
    assert windows(sql.format("CURRENT ROW"))[1] == nodes.RowWindow(1)
    assert windows(sql.format("UNBOUNDED PRECEDING"))[1] == nodes.UnboundedWindow()


test_windows_that_are_refused = refusals(
    ("PARTITION BY sym", "goes by the event time", "SUM(n) OVER (PARTITION BY sym)"),
    ("ORDER BY n", "goes by the event time", "ORDER BY n"),
    ("ORDER BY t DESC", "ORDER BY t", "ORDER BY t DESC"),
    ("PARTITION BY upper(sym) ORDER BY t ROWS 3 PRECEDING", "of columns", "upper(sym)"),
    ("ORDER BY t ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING", "from rows before the row", ""),
    ("ORDER BY t ROWS 1.5 PRECEDING", "not a whole number", "1.5"),
    ("ORDER BY t RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "from a time before the row", ""),
    ("ORDER BY t RANGE 3 PRECEDING", "no length of time", ""),
    ("ORDER BY t RANGE INTERVAL '1' MONTH PRECEDING", "no fixed length", ""),
    ("PARTITION BY t ORDER BY t", "for ever", ""),
    of="SELECT SUM(n) OVER ({}) FROM trade",
)
OVER = "OVER (ORDER BY t)"
HOUR = "FROM trade [RANGE 1 HOUR]"
test_over_that_is_refused = refusals(
    (f"SELECT RANK() {OVER} FROM trade", "all rows of the relation", "trade"),
    (f"SELECT upper(sym) {OVER} FROM trade", "neither an aggregate nor a window function", f"upper(sym) {OVER}"),
    (f"SELECT n {HOUR} WHERE RANK() {OVER} = 1", "in a subquery", f"RANK() {OVER}"),
    (f"SELECT MEDIAN(n) {OVER} {HOUR}", "GROUP BY in a subquery", f"MEDIAN(n) {OVER}"),
    (f"SELECT MODE() WITHIN GROUP (ORDER BY n) {OVER} {HOUR}", "ORDER BY in MODE OVER", ""),
    (f"SELECT COUNT(DISTINCT n) {OVER} {HOUR}", "COUNT(DISTINCT …) OVER", ""),
    (f"SELECT COUNT() {OVER} {HOUR}", "COUNT(*)", ""),
    (f"SELECT RANK() FILTER (WHERE n > 1) {OVER} {HOUR}", "FILTER is only for aggregates", ""),
    (f"SELECT SUM(RANK() {OVER}) {OVER} {HOUR}", "RANK OVER (…) is not supported in OVER", f"RANK() {OVER}"),
    of="{}",
)
test_window_functions_that_are_refused = refusals(
    ("RANK() OVER (PARTITION BY sym)", "RANK needs ORDER BY", "RANK() OVER (PARTITION BY sym)"),
    ("RANK() OVER (ORDER BY n ROWS 1 PRECEDING)", "takes no frame", "ROWS 1 PRECEDING"),
    ("LAG(n) OVER (ORDER BY n ROWS 1 PRECEDING)", "takes no frame", "ROWS 1 PRECEDING"),
    (f"RANK(n) {OVER}", "got 1 arguments", f"RANK(n) {OVER}"),
    (f"NTILE() {OVER}", "got 0 arguments", ""),
    (f"NTILE(0) {OVER}", "a whole number from 1", "0"),
    (f"LAG(n, sym) {OVER}", "a whole number from 0", "sym"),
    (f"LAG(n, 1, px) {OVER}", "CAST(… AS BIGINT)", "px"),
    (f"NTH_VALUE(n) {OVER}", "got 1 arguments", ""),
    ("SUM(n) OVER (ROWS 1 PRECEDING)", "needs ORDER BY", "ROWS 1 PRECEDING"),
    ("SUM(n) OVER (ORDER BY n ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW)", "ends before it begins", ""),
    ("SUM(n) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED FOLLOWING AND 1 FOLLOWING)", "UNBOUNDED FOLLOWING", ""),
    ("SUM(n) OVER (ORDER BY n ROWS 1.5 PRECEDING)", "whole number", "1.5"),
    ("SUM(n) OVER (ORDER BY px RANGE 1 PRECEDING)", "no distance in its order", "RANGE 1 PRECEDING"),
    ("SUM(n) OVER (ORDER BY n, t RANGE 1 PRECEDING)", "no distance in its order", "RANGE 1 PRECEDING"),
    ("SUM(n) OVER (ORDER BY t RANGE 1 PRECEDING)", "no distance in its order", "RANGE 1 PRECEDING"),
    ("SUM(n) OVER (ORDER BY n RANGE INTERVAL '1' DAY PRECEDING)", "no distance in its order", ""),
    of=f"SELECT {{}} {HOUR}",
)
NOW = "FROM trade [NOW]"


def test_qualify_with_a_condition_beside_the_rank():
    plan = relation(f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px, n DESC) < 3 AND n > 1")
    top = only(plan, Top)
    assert (top.n, [str(each) for each in top.by]) == (2, ["sym"])
    assert [(each.descending, each.nulls_first) for each in top.order] == [(False, True), (True, False)]
    assert isinstance(only(plan, Where).source, Top)


test_qualify_that_is_refused = refusals(
    (f"SELECT sym {NOW} QUALIFY n > 1", "no function with OVER", "QUALIFY n > 1"),
    (f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym QUALIFY c > 1", "belongs into HAVING", "QUALIFY c > 1"),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym) = 1", "needs ORDER BY", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n ROWS 3 PRECEDING) = 1", "takes no frame", ""),
)


def functions(sql: str) -> list[nodes.WindowFunctions]:
    return [each for each in nodes.walk(relation(sql)) if isinstance(each, nodes.WindowFunctions)]


def test_functions_of_one_partition_and_order_are_computed_together():
    by, other = "OVER (PARTITION BY sym ORDER BY n)", "OVER (ORDER BY n)"
    some = f"RANK() {by} AS r, 1 + SUM(n) {by} AS s, LAG(n, 2, 0) {by} AS l, RANK() {other} AS o"
    found = functions(f"SELECT {some} {HOUR}")
    assert [[each.call.function for each in node.functions] for node in found] == [["rank", "sum", "lag"], ["rank"]]
    _, total, lag = found[0].functions
    assert total.frame == nodes.Frame("range", None, 0)
    assert (lag.number, [str(each) for each in lag.call.arguments]) == (2, ["n", "0"])
    twice = functions(f"SELECT RANK() {by} AS r {HOUR} QUALIFY RANK() {by} <= 2")
    assert [len(each.functions) for each in twice] == [1]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("PARTITION BY sym", nodes.Frame("range", None, None)),
        ("ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", nodes.Frame("range", None, None)),
        ("ORDER BY n ROWS 3 PRECEDING", nodes.Frame("rows", -3, 0)),
        ("ORDER BY n ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING", nodes.Frame("rows", 0, 2)),
        ("ORDER BY n RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING", nodes.Frame("range", -1, None)),
        ("ORDER BY t RANGE INTERVAL '1' MINUTE PRECEDING", nodes.Frame("range", -60_000_000, 0)),
        ("ORDER BY CAST(t AS DATE) RANGE INTERVAL '2' DAYS PRECEDING", nodes.Frame("range", -2, 0)),
    ],
)
def test_a_frame_has_the_distances_of_its_ends(frame, expected):
    (node,) = functions(f"SELECT SUM(n) OVER ({frame}) AS s {HOUR}")
    assert node.functions[0].frame == expected


def test_windows_read_the_aggregates_of_the_groups():
    sql = f"SELECT sym, SUM(n) AS s, RANK() OVER (ORDER BY SUM(n) DESC) AS r {HOUR} GROUP BY sym QUALIFY r <= 2"
    (node,) = functions(sql)
    assert isinstance(node.source, nodes.GroupAggregates)
    assert [str(each.expression) for each in node.order] == ["s"]
    assert "r" in relation(sql).schema.names


RANKED = "(SELECT *, {} OVER (PARTITION BY sym ORDER BY px DESC) AS r FROM {}) AS x"


@pytest.mark.parametrize("condition", ["r <= 3", "r < 4", "3 >= r", "r <= 3 AND r <= 3"])
def test_the_first_rows_of_a_subquery_are_the_top(condition):
    source = RANKED.format("ROW_NUMBER()", "trade")
    plan = relation(f"SELECT * FROM {source} WHERE {condition}")
    assert only(plan, Top).n == 3
    assert isinstance(only(plan, nodes.WindowFunctions).source, Top)
    assert not [each for each in nodes.walk(plan) if isinstance(each, Where)]
    # Without the number, nothing has to be numbered.
    plan = relation(f"SELECT sym, px FROM {source} WHERE {condition}")
    assert isinstance(below(plan), Top)
    assert functions(f"SELECT sym, px FROM {source} WHERE {condition}") == []


def test_the_first_rows_by_time_are_a_window_of_rows():
    source = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {} DESC) AS r FROM {})"
    latest = relation(f"SELECT vehicle_id FROM {source.format('vehicle_id', 'timestamp', 'buses')} WHERE r = 1")
    assert below(latest) == nodes.WindowOver(BUSES, nodes.Latest())
    rows = relation(f"SELECT n FROM {source.format('sym', 't', 'trade')} WHERE r <= 2 AND sym = 'a'")
    assert below(rows).window.n == 2
    assert below(rows).window.partition == ("sym",)
    assert str(below(rows).window.where) == "(sym = 'a')"


def test_other_ranks_and_rows_behind_need_all_rows():
    hour = "trade [RANGE 1 HOUR]"
    for ranked, condition in (
        (RANKED.format("RANK()", hour), "r <= 3"),
        (RANKED.format("ROW_NUMBER()", hour), "r = 2"),
        (RANKED.format("ROW_NUMBER()", hour), "r <= 0"),
        (RANKED.format("ROW_NUMBER()", hour), "r <= n"),
        (RANKED.format("LEAD(px) OVER (PARTITION BY sym ORDER BY px DESC) AS l, ROW_NUMBER()", hour), "r <= 3"),
    ):
        plan = relation(f"SELECT * FROM {ranked} WHERE {condition}")
        assert not [each for each in nodes.walk(plan) if isinstance(each, Top)], condition
        assert isinstance(only(plan, Where).source, nodes.WindowFunctions)


def test_a_condition_on_the_partition_is_below_the_functions():
    plan = relation(f"SELECT * FROM {RANKED.format('RANK()', 'trade [RANGE 1 HOUR]')} WHERE sym = 'a' AND n > 1")
    above = next(each for each in nodes.walk(plan) if isinstance(each, Where) and "n >" in str(each.condition))
    assert isinstance(above.source, nodes.WindowFunctions)
    assert str(above.source.source.condition) == "(sym = 'a')"
