import pytest
import sqlglot
from kit.continuous import CATALOG, refused
from sqlglot import exp

from upstream.conf.errors import EnvironmentMissingError
from upstream.expressions.nodes import Call, Constant
from upstream.expressions.places import span
from upstream.expressions.reader import NOT_ALIASES, NOT_NAMES, refuse_compiled, take_lists
from upstream.language import bind
from upstream.language.dialect import parse
from upstream.operators.relations.plan.nodes import Where, walk


def test_each_node_has_its_place():
    sql = "SELECT a.x + 1 AS y FROM s [ROWS 5] WHERE NOT (b IN (1, 2)) AND c LIKE 'a%'"
    tree = parse(sql)

    def text(node: exp.Expr) -> str:
        start, end = span(node)
        return sql[start : end + 1]

    assert text(tree) == sql
    assert text(tree.expressions[0]) == "a.x + 1 AS y"
    assert text(tree.find(exp.Add)) == "a.x + 1"
    assert text(tree.args["from_"].this) == "s [ROWS 5]"
    assert text(tree.find(exp.In)) == "b IN (1, 2)"
    assert text(tree.find(exp.Like)) == "c LIKE 'a%'"
    assert text(tree.find(exp.Not)) == "NOT (b IN (1, 2))"


def test_names_keep_their_form_and_what_is_none_is_named():
    tree = parse("SELECT `a b`, `select` FROM `my stream`")
    assert [each.name for each in tree.expressions] == ["a b", "select"]
    assert tree.args["from_"].this.name == "my stream"
    refused("SELECT 'x' AS 'y' FROM trade", "a name after AS", at="'y'")
    error = refused("SELECT px FROM trade [RANGE 10 FOO]", "'FOO' is not expected here", at="FOO")
    assert "MINUTES" in error.expected
    refused("SELECT CAST(px AS ARRAY<INT>) FROM trade", "a type", at="ARRAY")
    refused("SELECT px FROM trade WHERE sym IN ('a' 3)", "a comma or ) in the list of IN", at="3")


@pytest.mark.parametrize("word", sorted(NOT_NAMES))
def test_words_of_the_grammar_need_backquotes_as_names(word):
    refused(f"SELECT px AS {word} FROM trade [NOW]")
    assert parse(f"SELECT `{word}` FROM s").expressions[0].name == word


@pytest.mark.parametrize("word", sorted(NOT_ALIASES - NOT_NAMES))
def test_words_that_begin_a_clause_are_aliases_only_after_as(word):
    assert parse(f"SELECT {word} FROM s").expressions[0].name == word
    assert parse(f"SELECT px FROM s AS {word}").args["from_"].this.alias == word
    refused(f"SELECT px {word} FROM trade [NOW]")


NUMBERS = ", ".join(map(str, range(-50, 100)))
TEXTS = ",".join(f"'v{each % 120}'" for each in range(150))


def condition(text: str):
    plan = bind(f"SELECT sym FROM trade [NOW] WHERE {text}", CATALOG).plan
    return next(each.condition for each in walk(plan) if isinstance(each, Where))


def test_lists_are_one_constant_of_the_type_that_the_value_has():
    for text, values in (
        (f"n IN ({NUMBERS})", tuple(range(-50, 100))),
        (f"sym in\n( {TEXTS} )", tuple(sorted({f"v{each}" for each in range(120)}))),
    ):
        found = condition(text)
        assert isinstance(found, Call)
        assert found.function == "in_list"
        listed = found.arguments[1]
        assert isinstance(listed, Constant)
        assert listed.value == values
        assert listed.type.value_type == found.arguments[0].type
    assert condition(f"px IN ({NUMBERS})").function == "in"  # doubles are compared as they always are


@pytest.mark.parametrize("around", ["'{}'", "`{}`", "/* {} */", "-- {}", '"{}"'])
def test_what_stands_in_quotes_or_in_a_comment_is_no_list(around):
    text = "SELECT " + around.format(f"n IN ({NUMBERS})")
    assert take_lists(text) == (text, {})


def test_compiled_sqlglot_is_refused(monkeypatch):
    refuse_compiled()
    monkeypatch.setattr(sqlglot.parser, "__file__", "/x/sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(EnvironmentMissingError, match="sqlglot"):
        refuse_compiled()
