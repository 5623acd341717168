from kit.continuous import refused
from sqlglot import exp

from upstream.sql.dialect import parse
from upstream.sql.places import span


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
