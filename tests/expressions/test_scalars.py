import pyarrow as pa
import pytest
from kit.continuous import CATALOG, MOMENT, refused, relation
from kit.refusals import refusals

from upstream.conf.errors import QueryRefusedError
from upstream.expressions.nodes import Field
from upstream.expressions.places import Text
from upstream.expressions.scalars import ColumnScope, Visible
from upstream.operators.relations.plan.nodes import Stream

NESTED = Stream(
    "nested",
    pa.schema({"s": pa.struct({"a": pa.struct({"b": pa.int64()})}), "l": pa.list_(pa.string()), "t": MOMENT}),
    event_time="t",
)


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
    ("SELECT sym FROM trade WHERE SUM(n) OVER (ORDER BY t) > 1", "in a subquery", "SUM(n) OVER (ORDER BY t)"),
    ("SELECT ROW(px, px) FROM trade", "two fields are named px", "ROW(px, px)"),
    ("SELECT (px, n) IN ((1, 2, 3)) FROM trade", "as many fields", "(px, n) IN ((1, 2, 3))"),
    ("SELECT sym LIKE 'a' ESCAPE 'xy' FROM trade", "one character", "'xy'"),
    ("SELECT n IS TRUE FROM trade", "of conditions", "n IS TRUE"),
    ("SELECT FIRST(px) FROM trade", "MIN_BY", "FIRST(px)"),
)


X, Y, Z = (Field(name, pa.int64()) for name in "xyz")
TEXT = Text("SELECT x")


def test_names_with_and_without_a_table_and_unknown_ones():
    scope = ColumnScope([Visible("a", "x", X), Visible("b", "Y", Y), Visible("b", "x", Z, plain=False)])
    assert scope.resolve("", "X", (0, 0), TEXT) == X
    assert scope.resolve("B", "y", (0, 0), TEXT) == Y
    assert scope.resolve("b", "x", (0, 0), TEXT) == Z
    assert scope.has("y")
    assert not scope.has("z")
    assert scope.tables() == {"a", "b"}
    scope = ColumnScope([Visible("a", "x", X), Visible("b", "x", Y)])
    for table, name, part in (
        ("", "x", "write a.x or b.x"),
        ("", "xx", "did you mean 'x'?"),
        ("a", "q", "use one of its columns: x"),
        ("c", "x", "there is no source 'c' here"),
    ):
        with pytest.raises(QueryRefusedError) as caught:
            scope.resolve(table, name, (0, 0), TEXT)
        assert part in str(caught.value)


def test_of_names_that_differ_by_case_the_exact_one_is_meant():
    scope = ColumnScope([Visible("", "E", X), Visible("", "e", Y)])
    assert [scope.resolve("", name, (0, 0), TEXT) for name in "Ee"] == [X, Y]
    of_two = ColumnScope([Visible("a", "E", X), Visible("b", "e", Y)])
    with pytest.raises(QueryRefusedError, match="'e' is ambiguous"):
        of_two.resolve("", "e", (0, 0), TEXT)
