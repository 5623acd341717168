"""Each path through the grammar that the documentation draws is read by the real parser, and means something."""

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import modules
from kit.continuous import CATALOG, refused
from kit.places import ROOT

from upstream.language import bind, statements
from upstream.language.dialect import ContinuousSql, parse
from upstream.language.grammar import STREAM_OPERATORS, TABLE_FUNCTIONS, Grammar
from upstream.language.statements import (
    Alter,
    Create,
    CreateFunction,
    CreateSource,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Refresh,
    Select,
    Show,
    ShowCreate,
)

GRAMMAR = modules.tool("query_grammar")

IN_A_QUERY = {
    "query": "{}",
    "select": "{}",
    "source": "SELECT vehicle_id, speed FROM {}",
    "function": "SELECT vehicle_id, speed FROM {}",
    "window": "SELECT vehicle_id, speed FROM buses {}",
    "length": "SELECT vehicle_id, speed FROM buses [RANGE {}]",
    "sample": "SELECT vehicle_id, speed FROM buses {}",
}
"""Where each rule stands in a query. The statements of the prompt are around queries."""


def paths(rule: str) -> list[str]:
    return [" ".join(words) for words in GRAMMAR.every(GRAMMAR.GRAMMAR[rule])]


QUERIES = [
    pytest.param(around.format(text), id=f"{rule}-{at}")
    for rule, around in IN_A_QUERY.items()
    for at, text in enumerate(paths(rule))
]


def test_each_rule_is_spelled():
    assert {*IN_A_QUERY, "statement"} == set(GRAMMAR.GRAMMAR)


def test_each_word_that_the_parser_adds_is_in_the_grammar():
    words = {word for rule in GRAMMAR.GRAMMAR for path in paths(rule) for word in path.split()}
    assert {*STREAM_OPERATORS, *TABLE_FUNCTIONS} <= words
    found = set(re.findall(r'"([A-Z]{3,})"', inspect.getsource(Grammar._emit) + inspect.getsource(Grammar._window)))
    assert {"PERIODIC", "SLIDE"} <= found <= words


@pytest.mark.parametrize("sql", QUERIES)
def test_each_path_through_a_rule_is_a_query_that_means_something(sql):
    if sql.endswith("EMIT EARLY"):  # which these windows do not have
        refused(sql, "HOP or TUMBLE")
        return
    query = bind(sql, CATALOG)
    assert query.schema.names == ["vehicle_id", "speed"]
    assert query.reads[0] == "buses"


@given(st.data())
def test_paths_through_all_rules_together_are_read_and_written(data):
    def choose(ways: int) -> int:
        return data.draw(st.integers(0, ways - 1))

    sql = " ".join(GRAMMAR.some(GRAMMAR.GRAMMAR["query"], choose))
    tree = parse(sql)
    assert parse(tree.sql(ContinuousSql)) == tree


KINDS = {"CREATE SOURCE": CreateSource, "CREATE TABLE": CreateTable, "CREATE": Create, "ALTER": Alter, "DROP": Drop}
KINDS |= {"CREATE FUNCTION": CreateFunction}
KINDS |= {"EXPLAIN": Explain, "REFRESH": Refresh, "SHOW CREATE": ShowCreate, "SHOW": Show, "DESCRIBE": Describe}


@pytest.mark.parametrize("text", paths("statement"))
def test_each_path_through_the_statements_is_the_statement_that_it_names(text):
    found = statements.parse(text)  # tests/language/test_statements.py has what is in each kind
    first, second, *_ = text.split()
    assert type(found) is KINDS.get(f"{first} {second}", KINDS.get(first, Select))
    query = None if isinstance(found, CreateSource | CreateFunction) else getattr(found, "text", None)
    if query is not None and query != "routes":
        assert bind(query, CATALOG).reads[0] == "buses"
    assert statements.split(text + ";") == ([text], "")


def test_each_statement_of_the_prompts_help_is_in_the_grammar():
    begins = {" ".join(text.split()[:2]) for text in paths("statement")}
    for line in statements.HELP.splitlines():
        words = line.split()
        if words[0].isupper() and words[0] != "SELECT":
            assert any(each.startswith(words[0]) for each in begins), line


def test_the_page_shows_each_rule():
    page = (ROOT / "docs" / "query-language.md").read_text(encoding="utf-8")
    assert re.findall(r"figures/grammar-(\w+)\.svg", page) == list(GRAMMAR.GRAMMAR)


@pytest.mark.parametrize("rule", GRAMMAR.GRAMMAR)
def test_the_drawings_are_current(rule, monkeypatch):
    """The library that draws is in the site's environment alone, where ``make docs`` compares the whole drawings."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    svg = (ROOT / "docs" / "figures" / f"grammar-{rule}.svg").read_text(encoding="utf-8")
    drawn, _, note = svg.rpartition("<!-- ")
    draw = modules.tool("draw_grammar")
    assert f"made from {draw.origin(rule)}," in note, "run `make railroads`"
    assert draw.signed(drawn, rule) == svg, "the drawing was changed by hand"
