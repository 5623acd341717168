"""Calls: DISTINCT and *, and functions that no query may have."""

import pytest
from kit.continuous import refused
from sqlglot import exp

from upstream.queries.language.calls import read_call
from upstream.queries.language.dialect import parse
from upstream.queries.language.places import Text


@pytest.mark.parametrize(
    ("sql", "arguments", "distinct"),
    [("COUNT(*)", 0, False), ("COUNT(DISTINCT a, b)", 2, True), ("upper(a)", 1, False), ("SUM(a)", 1, False)],
)
def test_a_call_is_its_name_and_arguments(sql: str, arguments: int, distinct: bool) -> None:
    node = parse(f"SELECT {sql} FROM s").expressions[0]
    assert isinstance(node, exp.Anonymous)
    found = read_call(node, node, Text(sql))
    assert (found.name, len(found.arguments), found.distinct) == (sql.partition("(")[0].lower(), arguments, distinct)


@pytest.mark.parametrize(
    ("sql", "at", "part"),
    [
        ("SELECT SUM(*) FROM trade", "SUM(*)", "name a column"),
        ("SELECT upper(DISTINCT sym) FROM trade", "upper(DISTINCT sym)", "only for aggregates"),
        ("SELECT rand() FROM trade", "rand()", "another value at each evaluation"),
        ("SELECT now() FROM trade", "now()", "event time"),
        ("SELECT ROW_NUMBER() FROM trade", "ROW_NUMBER()", "QUALIFY"),
    ],
)
def test_what_is_refused(sql: str, at: str, part: str) -> None:
    refused(sql, part, at=at)
