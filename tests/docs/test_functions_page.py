"""The page on functions is made from the rules that check a query, and its operators are what they are said to be."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from kit import modules
from kit.continuous import MOMENT
from kit.places import ROOT

from upstream.queries.expressions.nodes import Call, Expression
from upstream.queries.expressions.typing import function_names
from upstream.queries.language import Catalog, bind
from upstream.queries.relations.aggregates import AGGREGATES, ORDERLESS
from upstream.queries.relations.nodes import Project, walk
from upstream.queries.relations.nodes import Stream as StreamNode

FUNCTIONS = modules.tool("functions")
PAGE = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
COLUMNS = {
    **dict.fromkeys("abc", pa.int64()),
    **dict.fromkeys("pq", pa.bool_()),
    "s": pa.string(),
    "l": pa.list_(pa.int32()),
    "r": pa.struct({"f": pa.int32()}),
    "t": MOMENT,
}
CATALOG = Catalog().with_stream(StreamNode("x", pa.schema(COLUMNS), event_time="t"))
BECOMES = {"between": "and"}


def calls(expression: Expression) -> set[str]:
    if not isinstance(expression, Call):
        return set()
    return {expression.function}.union(*map(calls, expression.arguments))


def test_the_page_is_current() -> None:
    assert FUNCTIONS.page() == PAGE, "docs/functions.md is out of date: run `make reference`"


@pytest.mark.parametrize("name", FUNCTIONS.OPERATORS)
def test_operators_are_the_functions_that_the_page_has_them_for(name: str) -> None:
    plan = bind(f"SELECT {FUNCTIONS.OPERATORS[name]} AS found FROM x", CATALOG).plan
    columns = [made for node in walk(plan) if isinstance(node, Project) for _, made in node.columns]
    found = set[str]().union(*map(calls, columns))
    assert BECOMES.get(name, name) in found


def test_each_function_has_one_line() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for name in {*function_names()} - {*FUNCTIONS.OPERATORS, "second_with_fraction"}:
        assert len([row for row in rows if re.match(rf"\| `{name}[(`]", row)]) == 1, name
    for name in AGGREGATES - {*ORDERLESS}:
        assert f"`{name}(" in PAGE or f"- `{name}` for" in PAGE or name == "array_agg", name
    assert not any("|  |  |" in row or ("by its arguments |" in row and "a - b" not in row) for row in rows)
