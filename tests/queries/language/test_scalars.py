"""Names, types and functions of expressions; what is not a value is refused."""

import pyarrow as pa
import pytest
from kit.continuous import CATALOG, MOMENT, refused, relation

from upstream.queries.relations.nodes import Stream

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
def test_expressions_are_typed(sql: str, expected: str) -> None:
    assert bound(sql).replace("- n", "-n").replace("(-n)", "(- n)") == expected


def test_fields_of_structs_and_elements_of_lists() -> None:
    catalog = CATALOG.with_stream(NESTED)
    plan = relation("SELECT s.a.b AS x, nested.s.a.b AS y, l[0] AS z FROM nested [NOW]", catalog)
    columns = dict(plan.columns)
    assert columns["x"] == columns["y"]
    assert columns["x"].type == pa.int64()
    assert columns["z"].type == pa.string()
    refused("SELECT s.a.c FROM nested [NOW]", catalog=catalog)


@pytest.mark.parametrize(
    ("sql", "at", "part"),
    [
        ("SELECT pxx FROM trade", "pxx", "did you mean 'px'?"),
        ("SELECT a.px FROM trade b", "a.px", "there is no source 'a'"),
        ("SELECT px + sym FROM trade WHERE uper(sym) = 'A'", "uper(sym)", "upper"),
        ("SELECT sym FROM trade WHERE t + t > t", "t + t", ""),
        ("SELECT sym FROM trade WHERE n", "n", "not a condition"),
        ("SELECT sym FROM trade WHERE COUNT(*) > 1", "COUNT(*)", "use HAVING"),
        ("SELECT SUM(MAX(px)) FROM trade", "MAX(px)", "inside of SUM"),
        ("SELECT SUM(sym) FROM trade", "SUM(sym)", "a number"),
        ("SELECT COUNT() FROM trade", "COUNT()", "COUNT(*)"),
        ("SELECT upper(sym) FILTER (WHERE n > 1) FROM trade", "", "FILTER is only for aggregates"),
        ("SELECT sym FROM trade WHERE SUM(n) OVER (ORDER BY t) > 1", "SUM(n) OVER (ORDER BY t)", "RANGE 10 MINUTES"),
        ("SELECT (1, 2) FROM trade", "(1, 2)", "before IN"),
        ("SELECT (px, n) IN ((1, 2)) FROM trade", "(px, n)", "need a subquery"),
        ("SELECT sym LIKE 'a' ESCAPE 'xy' FROM trade", "'xy'", "one character"),
        ("SELECT n IS TRUE FROM trade", "n IS TRUE", "of conditions"),
        ("SELECT FIRST(px) FROM trade", "FIRST(px)", "MIN_BY"),
    ],
)
def test_refusals_point_at_the_expression(sql: str, at: str, part: str) -> None:
    refused(sql, part, at=at)
