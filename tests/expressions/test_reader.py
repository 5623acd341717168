import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, refused
from sqlglot import exp

from upstream.conf.column_names import quoted_text
from upstream.conf.errors import EnvironmentMissingError
from upstream.expressions.nodes import Call, Constant
from upstream.expressions.places import span
from upstream.expressions.reader import NOT_ALIASES, NOT_NAMES, refuse_compiled, take_lists
from upstream.language import bind
from upstream.language.dialect import ContinuousSql, parse
from upstream.language.layout import layout
from upstream.language.statements import parse as parse_statement
from upstream.language.statements import split
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


@pytest.mark.parametrize(
    ("written", "value"),  # as in Spark 4.2
    [
        ("'O''Brien'", "O'Brien"),
        ('"a""b"', 'a"b'),
        ("''''", "'"),
        ("''''''", "''"),
        ("'a'''", "a'"),
        ("\"it''s\"", "it''s"),
        ("'a' 'b'", "ab"),
        ("'a''b' 'c'", "a'bc"),
        ("'a'\"b\"", "ab"),
        ("'a' -- c\n'b'", "ab"),
        (r"'a\'b\\'", "a'b\\"),
        (r"'\''''", "''"),
        (r"'a\nb\tc\0d\Ze\qf'", "a\nb\tc\0d\x1aeqf"),
        (r"'a\%b\_'", r"a\%b\_"),
        (r"'\u00e9\U0001F600\101'", "é😀A"),
        (r"r'a\n' 'b\n'", "a\\nb\n"),
        (r"r'a\''b'", "a\\b"),
        ('R"a""b"', "ab"),
    ],
)
def test_a_text_is_that_of_spark_wherever_it_stands(written, value):
    tree = parse(f"SELECT {written} AS a FROM s WHERE a = {written}")
    assert tree.expressions[0].this.this == value
    assert parse(tree.sql(ContinuousSql)) == tree
    source = parse_statement(f"CREATE SOURCE s FROM {written} WITH (key = {written})")
    assert (source.path, source.options) == (value, {"key": value})
    assert parse_statement(split(layout(source.statement))[0][0]) == source


TEXT = st.text(st.sampled_from("'\"`\\%_abnrtuvfZ01;\n\t\0é- ") | st.characters(codec="utf-8"), max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=3), st.booleans())
def test_a_text_is_read_as_it_was_written(texts, doubled):
    def written(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'" if doubled else quoted_text(text)

    sql = "SELECT " + ", ".join(f"{written(each)} AS c{at}" for at, each in enumerate(texts)) + " FROM s"
    tree = parse(sql)
    assert [each.this.this for each in tree.expressions] == texts
    assert parse(tree.sql(ContinuousSql)) == tree
    statement = f"CREATE SOURCE s FROM {written(texts[0])} WITH (key = {written(texts[-1])})"
    source = parse_statement(split(layout(statement))[0][0])
    assert (source.path, source.options) == (texts[0], {"key": texts[-1]})


def test_a_text_is_no_name_and_no_word():
    for text in ("SELECT px X'ab' FROM trade", "SELECT N'px' FROM trade", "SELECT px FROM N'trade'"):
        refused(text)
    source = parse_statement("CREATE SOURCE s FROM 'x' WITH (key = 'env', separator = '-', quote = ')')")
    assert source.options == {"key": "env", "separator": "-", "quote": ")"}


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
