import pyarrow as pa
import pytest
from kit.continuous import CATALOG, MOMENT, refused, relation
from sqlglot import exp

from upstream.operators.relations.plan.nodes import Stream
from upstream.sql.dialect import parse
from upstream.sql.places import Text
from upstream.sql.scalars import has_aggregate, has_query, has_window, read_call, unwrapped

from .refusals import refusals

NESTED = Stream(
    "nested",
    pa.schema({"s": pa.struct({"a": pa.struct({"b": pa.int64()})}), "l": pa.list_(pa.string()), "t": MOMENT}),
    event_time="t",
)


def bound(sql: str) -> str:
    return str(dict(relation(f"SELECT {sql} AS x FROM trade [NOW] AS a").columns)["x"])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("A.SYM", "sym"),
        ("n + 1", "(n + cast(1 AS BIGINT))"),
        ("-n", "(- n)"),
        ("-3", "-3"),
        ("px IS NOT NULL", "(px IS NOT NULL)"),
        ("px > 1 IS TRUE", "((px > cast(1 AS DOUBLE)) <=> TRUE)"),
        ("n IN (1, 2)", "(n IN (cast(1 AS BIGINT), cast(2 AS BIGINT)))"),
        ("sym || 'x'", "concat(sym, 'x')"),
        ("EXTRACT(HOUR FROM t)", "hour(t)"),
        ("upper(sym)", "upper(sym)"),
        ("CASE WHEN n = 1 THEN 'a' END", "(CASE WHEN (n = cast(1 AS BIGINT)) THEN 'a' ELSE NULL END)"),
    ],
)
def test_expressions_are_typed(sql, expected):
    assert bound(sql).replace("- n", "-n").replace("(-n)", "(- n)") == expected


def test_fields_of_structs_and_elements_of_lists():
    catalog = CATALOG.with_stream(NESTED)
    plan = relation("SELECT s.a.b AS x, nested.s.a.b AS y, l[0] AS z FROM nested [NOW]", catalog)
    columns = dict(plan.columns)
    assert columns["x"] == columns["y"]
    assert columns["x"].type == pa.int64()
    assert columns["z"].type == pa.string()
    refused("SELECT s.a.c FROM nested [NOW]", catalog=catalog)


test_refusals_point_at_the_expression = refusals(
    ("SELECT pxx FROM trade", "did you mean 'px'?", "pxx"),
    ("SELECT a.px FROM trade b", "there is no source 'a'", "a.px"),
    ("SELECT px + sym FROM trade WHERE uper(sym) = 'A'", "upper", "uper(sym)"),
    ("SELECT sym FROM trade WHERE t + t > t", "", "t + t"),
    ("SELECT sym FROM trade WHERE n", "not a condition", "n"),
    ("SELECT sym FROM trade WHERE COUNT(*) > 1", "use HAVING", "COUNT(*)"),
    ("SELECT SUM(MAX(px)) FROM trade", "inside of SUM", "MAX(px)"),
    ("SELECT SUM(sym) FROM trade", "a number", "SUM(sym)"),
    ("SELECT COUNT() FROM trade", "COUNT(*)", "COUNT()"),
    ("SELECT upper(sym) FILTER (WHERE n > 1) FROM trade", "FILTER is only for aggregates", ""),
    ("SELECT sym FROM trade WHERE SUM(n) OVER (ORDER BY t) > 1", "RANGE 10 MINUTES", "SUM(n) OVER (ORDER BY t)"),
    ("SELECT (1, 2) FROM trade", "before IN", "(1, 2)"),
    ("SELECT (px, n) IN ((1, 2)) FROM trade", "need a subquery", "(px, n)"),
    ("SELECT sym LIKE 'a' ESCAPE 'xy' FROM trade", "one character", "'xy'"),
    ("SELECT n IS TRUE FROM trade", "of conditions", "n IS TRUE"),
    ("SELECT FIRST(px) FROM trade", "MIN_BY", "FIRST(px)"),
)


@pytest.mark.parametrize(
    ("sql", "arguments", "distinct"),
    [("COUNT(*)", 0, False), ("COUNT(DISTINCT a, b)", 2, True), ("upper(a)", 1, False), ("SUM(a)", 1, False)],
)
def test_a_call_is_its_name_and_arguments(sql, arguments, distinct):
    node = parse(f"SELECT {sql} FROM s").expressions[0]
    assert isinstance(node, exp.Anonymous)
    found = read_call(node, node, Text(sql))
    assert (found.name, len(found.arguments), found.distinct) == (sql.partition("(")[0].lower(), arguments, distinct)


test_what_is_refused = refusals(
    ("SELECT SUM(*) FROM trade", "name a column", "SUM(*)"),
    ("SELECT upper(DISTINCT sym) FROM trade", "only for aggregates", "upper(DISTINCT sym)"),
    ("SELECT rand() FROM trade", "another value at each evaluation", "rand()"),
    ("SELECT now() FROM trade", "event time", "now()"),
    ("SELECT ROW_NUMBER() FROM trade", "QUALIFY", "ROW_NUMBER()"),
)


def test_what_an_expression_has_in_it():
    def item(sql: str) -> object:
        return parse(f"SELECT {sql} FROM s").expressions[0]

    assert has_aggregate(item("1 + SUM(x)"))
    assert not has_aggregate(item("SUM(x) OVER (ORDER BY t)"))
    assert has_aggregate(item("SUM(MAX(x)) OVER (ORDER BY t)"))
    assert not has_aggregate(item("(SELECT MAX(x) FROM t)"))
    assert not has_aggregate(item("COUNT(*) FILTER (WHERE x > 1) OVER (ORDER BY t)"))
    assert has_window(item("1 + SUM(x) OVER (ORDER BY t)"))
    assert has_query(item("1 + (SELECT 1 FROM t)"))
    assert not has_query(item("1 + x"))
    select = parse("SELECT ((1 + x)) FROM s")
    assert unwrapped(select.expressions[0]).sql() == "1 + x"
