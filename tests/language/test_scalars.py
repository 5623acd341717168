import pytest
from kit.refusals import refusals
from sqlglot import exp

from upstream.expressions.places import Text
from upstream.expressions.scalars import unwrapped
from upstream.language.dialect import parse
from upstream.language.scalars import has_aggregate, has_query, has_window, read_call


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
