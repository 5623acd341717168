from datetime import timedelta

import pyarrow as pa
import pytest
from kit.continuous import only, refused, relation
from kit.evaluated import changes, relation_at
from kit.refusals import refusals

from upstream.operators.relations.plan.nodes import GroupAggregates, Project, SetOperation, Stream, Top, Where, walk

NOW = "FROM trade [NOW]"


def test_groups_by_name_alias_number_and_expression():
    expected = relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY upper(sym)")
    assert isinstance(expected, GroupAggregates)
    assert [name for name, _ in expected.by] == ["u"]
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY u") == expected
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY 1") == expected
    # A column of the source comes before an alias of that name.
    shadowed = relation(f"SELECT upper(sym) AS n, COUNT(*) AS c {NOW} GROUP BY n, sym")
    assert [str(each) for _, each in only(shadowed, GroupAggregates).by] == ["n", "sym"]


def test_expressions_having_and_order_have_aggregates_of_their_own():
    plan = relation(f"SELECT upper(sym) || 'x' AS u, SUM(px) / COUNT(*) AS r, SUM(px) AS s {NOW} GROUP BY upper(sym)")
    assert isinstance(plan, Project)
    aggregate = plan.source
    assert [each.function for each in aggregate.aggregates] == ["sum", "count"], "the same sum is computed once"
    assert plan.schema.names == ["u", "r", "s"]
    plan = relation(
        f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym HAVING MAX(px) > 3 AND c > 1 ORDER BY MIN(n) LIMIT 2"
    )
    aggregate = only(plan, GroupAggregates)
    assert [each.function for each in aggregate.aggregates] == ["count", "max", "min"]
    assert isinstance(only(plan, Where).source, GroupAggregates)
    assert only(plan, Top).order[0].expression.name == "min"
    assert plan.schema.names == ["sym", "c"]
    assert isinstance(relation(f"SELECT 1 AS one {NOW} HAVING COUNT(*) > 0").source, Where)
    group = only(relation(f"SELECT 1 AS one {NOW} HAVING 2 IS NOT NULL"), GroupAggregates)
    assert [each.function for each in group.aggregates] == ["count"], "one row, also of no rows"


test_what_is_refused = refusals(
    (f"SELECT sym, px {NOW} GROUP BY sym", "'px' is neither in GROUP BY nor in an aggregate", "px"),
    (f"SELECT sym, COUNT(*) {NOW}", "'sym' is neither", "sym"),
    (f"SELECT * {NOW} GROUP BY sym", "* cannot stand beside", "*"),
    (f"SELECT sym {NOW} GROUP BY 2", "GROUP BY 2 is not a column of SELECT", "2"),
    (f"SELECT COUNT(*) {NOW} GROUP BY 1", "an aggregate cannot be in GROUP BY", "1"),
    (f"SELECT COUNT(*) {NOW} GROUP BY MAX(px)", "an aggregate cannot be in GROUP BY", "MAX(px)"),
    (f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym HAVING px > 1", "'px' is neither", "px"),
    (f"SELECT 1 AS x {NOW} GROUP BY CUBE (n, n+1, n+2, n+3, n+4, n+5, n+6)", "128 groupings", ""),
    (f"SELECT sym {NOW} GROUP BY sym GROUPING SETS ((sym))", "stands before its columns", "GROUPING SETS"),
    (f"SELECT px {NOW} GROUP BY ROLLUP (sym)", "'px' is neither in GROUP BY", "px"),
    (f"SELECT GROUPING(sym) AS g {NOW} GROUP BY sym", "needs several groupings", "GROUPING(sym)"),
    (f"SELECT GROUPING(px) AS g {NOW} GROUP BY ROLLUP (sym)", "of an expression of GROUP BY", "GROUPING(px)"),
    (f"SELECT GROUPING_ID(n) AS g {NOW} GROUP BY ROLLUP (sym, n)", "in their order", "GROUPING_ID(n)"),
    (f"SELECT 1 AS x {NOW} GROUP BY ROLLUP (CUBE (sym))", "put both into GROUPING SETS", "CUBE (sym)"),
    (f"SELECT 1 AS x {NOW} GROUP BY ROLLUP (MAX(n))", "an aggregate cannot be in GROUP BY", "MAX(n)"),
)


def sets(group: str, items: str = "COUNT(*) AS c") -> list[list[str]]:
    """The columns of each grouping, without the number that tells them apart."""
    plan = relation(f"SELECT {items} {NOW} GROUP BY {group}")
    return [
        [str(each) for name, each in node.by if not name.startswith("grouping_id")]
        for node in walk(plan)
        if isinstance(node, GroupAggregates)
    ]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("sym, n", [["sym", "n"]]),
        ("ROLLUP (sym, n)", [["sym", "n"], ["sym"], []]),
        ("sym, n WITH ROLLUP", [["sym", "n"], ["sym"], []]),
        ("ROLLUP ((sym, n), px)", [["sym", "n", "px"], ["sym", "n"], []]),
        ("CUBE (sym, n)", [["sym", "n"], ["sym"], ["n"], []]),
        ("sym, n WITH CUBE", [["sym", "n"], ["sym"], ["n"], []]),
        ("GROUPING SETS ((sym, n), n, ())", [["sym", "n"], ["n"], []]),
        ("GROUPING SETS (sym, sym)", [["sym"], ["sym"]]),
        ("GROUPING SETS (ROLLUP (sym), n)", [["sym"], [], ["n"]]),
        ("px, ROLLUP (sym)", [["px", "sym"], ["px"]]),
        ("ROLLUP (sym), ROLLUP (n)", [["sym", "n"], ["sym"], ["n"], []]),
        ("sym, ROLLUP (sym)", [["sym"], ["sym"]]),
        ("GROUPING SETS ((px + n), (n + px))", [["(px + cast(n AS DOUBLE))"]] * 2),
        ("CUBE (px + n, n + px)", [["(px + cast(n AS DOUBLE))"]] * 3 + [[]]),
        ("GROUPING SETS (())", [[]]),
        ("GROUPING SETS ((), ())", [[], []]),
    ],
)
def test_sets_are_sparks(group, expected):
    assert sets(group) == expected


def test_parts_are_a_union_of_rows_with_null_for_what_a_set_lacks():
    plan = relation(
        f"SELECT sym, n, COUNT(*) AS c, GROUPING(n) AS g, GROUPING_ID(sym, n) AS i {NOW} GROUP BY CUBE (sym, n)"
    )
    parts = [each for each in walk(plan) if isinstance(each, Project) and isinstance(each.source, GroupAggregates)]
    shown = [[str(dict(each.columns)[name]) for name in ("sym", "n")] for each in parts]
    assert shown == [["sym", "n"], ["sym", "NULL"], ["NULL", "n"], ["NULL", "NULL"]]
    numbers = [[str(value) for name, value in each.source.by if name.startswith("grouping_id")] for each in parts]
    assert numbers == [["0"], ["1"], ["2"], ["3"]]
    assert all(each.all for each in walk(plan) if isinstance(each, SetOperation))
    assert [str(each.type) for each in plan.schema] == ["string", "int64", "int64", "int8", "int64"]


@pytest.mark.parametrize(
    ("group", "columns"),
    [
        ("GROUPING SETS ((1), (n))", [["sym"], ["n"]]),
        ("GROUPING SETS (1, (1, 2), ((2)))", [["sym"], ["sym", "n"], ["n"]]),
        ("ROLLUP (1, (2))", [["sym", "n"], ["sym"], []]),
        ("CUBE ((1), 2)", [["sym", "n"], ["sym"], ["n"], []]),
        ("(1), (2)", [["sym", "n"]]),
    ],
)
def test_a_number_is_an_item_of_select_also_in_brackets(group, columns):
    assert sets(group, "sym, n, COUNT(*) AS c") == columns


def test_one_set_without_columns_is_one_group_also_of_no_rows():
    plan = relation(f"SELECT COUNT(*) AS c, GROUPING_ID() AS i {NOW} GROUP BY GROUPING SETS (())")
    assert only(plan, GroupAggregates).by == ()
    assert len(only(relation(f"SELECT 7 AS i {NOW} GROUP BY GROUPING SETS (())"), GroupAggregates).aggregates) == 1


def test_as_many_groupings_as_allowed():
    five = "sym, n, px, t, upper(sym)"
    assert len(sets(f"CUBE ({five}), ROLLUP (n + 1)")) == 64
    refused(f"SELECT 1 AS x {NOW} GROUP BY CUBE ({five}), ROLLUP (n, px)", "96 groupings", "at most 64")
    plan = relation(f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY GROUPING SETS ((sym))")
    assert len(only(plan, GroupAggregates).by) == 2


def test_the_average_of_intervals_is_rounded_half_up():
    stream = Stream("s", pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))]), event_time="t")
    sql = (
        "SELECT AVG(t - TIMESTAMP '1970-01-01') AS v, SUM(t - TIMESTAMP '1970-01-01') FILTER (WHERE k > 1) AS s FROM s"
    )
    found = relation_at(changes(f"{sql} EMIT CHANGES", {stream: [(1, 1), (2, 2)]}), 20)
    assert found == {(timedelta(microseconds=2), timedelta(microseconds=2)): 1}
    assert relation_at(changes(f"{sql} EMIT CHANGES", {stream: [(None, 1)]}), 0) == {(None, None): 1}
