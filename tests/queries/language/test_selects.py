"""Groups, HAVING, QUALIFY, names of columns, DISTINCT, ORDER BY with LIMIT."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kit.continuous import only, refused, relation

from upstream.queries.expressions.nodes import Field
from upstream.queries.relations.nodes import Aggregate, Distinct, Order, Project, Top, Where

NOW = "FROM trade [NOW]"


def test_groups_by_name_alias_number_and_expression() -> None:
    expected = relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY upper(sym)")
    assert isinstance(expected, Aggregate)
    assert [name for name, _ in expected.by] == ["u"]
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY u") == expected
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY 1") == expected
    # A column of the source comes before an alias of that name.
    shadowed = relation(f"SELECT upper(sym) AS n, COUNT(*) AS c {NOW} GROUP BY n, sym")
    assert [str(each) for _, each in only(shadowed, Aggregate).by] == ["n", "sym"]


def test_expressions_over_groups_and_aggregates() -> None:
    plan = relation(f"SELECT upper(sym) || 'x' AS u, SUM(px) / COUNT(*) AS r, SUM(px) AS s {NOW} GROUP BY upper(sym)")
    assert isinstance(plan, Project)
    aggregate = plan.source
    assert [each.function for each in aggregate.aggregates] == ["sum", "count"], "the same sum is computed once"
    assert plan.schema.names == ["u", "r", "s"]


def test_having_and_order_may_have_aggregates_of_their_own() -> None:
    plan = relation(
        f"SELECT sym {NOW} GROUP BY sym HAVING MAX(px) > 3 AND c > 1 ORDER BY MIN(n) LIMIT 2".replace(
            "sym {", "sym {"
        ).replace("SELECT sym", "SELECT sym, COUNT(*) AS c")
    )
    aggregate = only(plan, Aggregate)
    assert [each.function for each in aggregate.aggregates] == ["count", "max", "min"]
    assert isinstance(only(plan, Where).source, Aggregate)
    assert only(plan, Top).order[0].expression.name == "min"
    assert plan.schema.names == ["sym", "c"]
    assert isinstance(relation(f"SELECT 1 AS one {NOW} HAVING COUNT(*) > 0").source, Where)


def test_names_of_columns_that_have_none() -> None:
    plan = relation(
        f"SELECT COUNT(*), COUNT(px), MAX(px), 1 + 1, CAST(sym AS STRING), COUNT(*) AS count_2 {NOW} GROUP BY sym"
    )
    assert plan.schema.names == ["count", "count_3", "max", "column", "sym", "count_2"]


def test_distinct_orders_by_what_it_selects() -> None:
    plan = relation(f"SELECT DISTINCT sym, n AS m {NOW} ORDER BY m DESC, sym LIMIT 3")
    assert isinstance(plan, Top)
    assert isinstance(plan.source, Distinct)
    assert plan.order == (
        Order(Field("m", pa.int64()), descending=True, nulls_first=False),
        Order(Field("sym", pa.string())),
    )
    refused(f"SELECT DISTINCT sym {NOW} ORDER BY n LIMIT 3", "orders only by what it selects", at="n")


def test_order_by_columns_that_are_not_selected() -> None:
    plan = relation(f"SELECT sym {NOW} ORDER BY px DESC NULLS FIRST LIMIT 3")
    assert isinstance(plan, Project)
    assert plan.source.order == (Order(Field("px", pa.float64()), descending=True, nulls_first=True),)
    assert relation(f"SELECT sym, px {NOW} ORDER BY 2 LIMIT 3").order[0].expression == Field("px", pa.float64())
    assert relation(f"SELECT sym {NOW} LIMIT 3").order == ()


def test_qualify_with_a_condition_beside_the_rank() -> None:
    plan = relation(f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px, n DESC) < 3 AND n > 1")
    top = only(plan, Top)
    assert (top.n, [str(each) for each in top.by]) == (2, ["sym"])
    assert isinstance(only(plan, Where).source, Top)


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        (f"SELECT sym, px {NOW} GROUP BY sym", "'px' is neither in GROUP BY nor in an aggregate", "px"),
        (f"SELECT sym, COUNT(*) {NOW}", "'sym' is neither", "sym"),
        (f"SELECT * {NOW} GROUP BY sym", "* cannot stand beside", "*"),
        (f"SELECT sym {NOW} GROUP BY 2", "GROUP BY 2 is no column of SELECT", "2"),
        (f"SELECT COUNT(*) {NOW} GROUP BY 1", "an aggregate cannot stand in GROUP BY", "1"),
        (f"SELECT COUNT(*) {NOW} GROUP BY MAX(px)", "an aggregate cannot stand in GROUP BY", "MAX(px)"),
        (f"SELECT sym {NOW} ORDER BY sym", "a relation has no order", "ORDER BY sym"),
        (f"SELECT sym {NOW} LIMIT 0", "LIMIT 0 keeps no rows", "0"),
        (f"SELECT sym {NOW} ORDER BY 3 LIMIT 1", "ORDER BY 3 is no column", "3"),
        (f"SELECT sym, SYM {NOW}", "two columns are named 'SYM'", "SYM"),
        (f"SELECT sym {NOW} QUALIFY n > 1", "no function with OVER", "QUALIFY n > 1"),
        (f"SELECT sym {NOW} QUALIFY RANK() OVER (ORDER BY n) = 1", "ROW_NUMBER()", "RANK() OVER (ORDER BY n) = 1"),
        (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym) = 1", "needs ORDER BY", ""),
        (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 2", "= 1, or <= n", ""),
        (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) <= 0", "= 1, or <= n", ""),
        (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n ROWS 3 PRECEDING) = 1", "takes no frame", ""),
        (
            f"SELECT sym, COUNT(*) {NOW} GROUP BY sym QUALIFY ROW_NUMBER() OVER (ORDER BY sym) = 1",
            "aggregate in a subquery",
            "",
        ),
        (f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym HAVING px > 1", "'px' is neither", "px"),
        (f"SELECT x.* {NOW} a", "there is no source 'x'", "x.*"),
        (f"SELECT a.* AS b {NOW} a", "a comma, or FROM", "AS"),
    ],
)
def test_what_is_refused(sql: str, part: str, at: str) -> None:
    refused(sql, part, at=at)


def test_stars_of_one_source() -> None:
    assert relation("SELECT b.*, a.n FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym").schema.names == [
        "sym",
        "bid",
        "t",
        "n",
    ]
