import pytest
from sqlglot import exp

from upstream.sql.dialect import parse
from upstream.sql.places import Text
from upstream.sql.scalars import read_call

from .refusals import refusals


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
