import pytest

from upstream.cli import sql_statements as sql
from upstream.conf.errors import OptionError


@pytest.mark.parametrize(
    ("buffer", "found", "rest"),
    [
        ("", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        (" ; ; SELECT 1 ;", ["SELECT 1"], ""),
        ("SELECT ';' AS a; SELECT 2", ["SELECT ';' AS a"], "SELECT 2"),
        ("SELECT 1 -- one; or two\n; x", ["SELECT 1 -- one; or two"], "x"),
        ("SELECT /* ; */ 1; /* not yet", ["SELECT /* ; */ 1"], "/* not yet"),
        ("SELECT 'a; b", [], "SELECT 'a; b"),
        ("SELECT 1; SELECT 'a; b", ["SELECT 1"], "SELECT 'a; b"),
        ("SELECT `a;b` FROM s;", ["SELECT `a;b` FROM s"], ""),
        ("EXPLAIN SELECT ';' FROM s; SELECT 2;", ["EXPLAIN SELECT ';' FROM s", "SELECT 2"], ""),
        ("\\d buses\nSELECT 1", ["\\d buses"], "SELECT 1"),
        ("\\q;", ["\\q"], ""),
        ("SELECT 1; \\d\n", ["SELECT 1", "\\d"], ""),
        ("SELECT\n\\d\n", [], "SELECT\n\\d\n"),
    ],
)
def test_a_statement_ends_with_a_semicolon_of_its_own(buffer, found, rest):
    assert sql.split(buffer) == (found, rest)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SELECT 1", sql.Select("SELECT 1")),
        ("ISTREAM(SELECT k FROM s)", sql.Select("ISTREAM(SELECT k FROM s)")),
        ("WITH a AS (SELECT 1) SELECT * FROM a", sql.Select("WITH a AS (SELECT 1) SELECT * FROM a")),
        ("explain  SELECT 'x' FROM s", sql.Explain("SELECT 'x' FROM s")),
        ("EXPLAIN per_route", sql.Explain("per_route")),
        ("CREATE VIEW v AS SELECT 'a;b'", sql.Create("v", "SELECT 'a;b'", view=True)),
        ("create materialized view Q as\nSELECT 1", sql.Create("Q", "SELECT 1")),
        (
            "CREATE MATERIALIZED VIEW q WITH (weight = 2.5, buckets=4) AS SELECT 1",
            sql.Create("q", "SELECT 1", weight=2.5, buckets=4),
        ),
        ("CREATE MATERIALIZED VIEW `per-route` AS SELECT 1", sql.Create("per-route", "SELECT 1")),
        ("ALTER MATERIALIZED VIEW q AS SELECT 2", sql.Alter("q", text="SELECT 2")),
        ("ALTER MATERIALIZED VIEW q SET (weight = 3)", sql.Alter("q", weight=3.0)),
        ("ACTIVATE q", sql.Activate("q", active=True)),
        ("DEACTIVATE q", sql.Activate("q", active=False)),
        ("DROP MATERIALIZED VIEW q", sql.Drop("q")),
        ("DROP VIEW v", sql.Drop("v", view=True)),
        ("\\d", sql.Describe()),
        ("\\d buses", sql.Describe("buses")),
        ("\\?", sql.Help()),
        ("help", sql.Help()),
        ("\\q", sql.Quit()),
        ("quit", sql.Quit()),
        ("help FROM s", sql.Select("help FROM s")),
    ],
)
def test_what_a_statement_asks_for(text, statement):
    assert sql.parse(text) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE x", "'TABLE' is not expected.*Expected: VIEW"),
        ("CREATE VIEW v AS", "not complete.*Expected: a query"),
        ("CREATE VIEW v WITH (weight = 2) AS SELECT 1", "'WITH' is not expected.*Expected: AS"),
        ("CREATE MATERIALIZED VIEW q WITH (weight = a) AS SELECT 1", "'a' is not expected.*Expected: a number"),
        ("CREATE MATERIALIZED VIEW q WITH (speed = 1) AS SELECT 1", "WITH .* speed .*Expected: weight or buckets"),
        ("CREATE MATERIALIZED VIEW q WITH (weight = 1, weight = 2) AS SELECT 1", "each once"),
        ("CREATE MATERIALIZED VIEW q WITH (buckets = 1.5) AS SELECT 1", "buckets = 1.5.*a whole number"),
        ("ALTER MATERIALIZED VIEW q SET (buckets = 2)", "SET .weight"),
        ("ALTER MATERIALIZED VIEW q SET (weight = 2) now", "'now' is not expected.*Expected: the end"),
        ("DROP VIEW", "not complete.*Expected: a name"),
        ("DROP q", "'q' is not expected.*Expected: VIEW"),
        ("DROP VIEW v w", "'w' is not expected"),
        ("EXPLAIN", "not complete"),
        ("ACTIVATE 'q'; x", "'q|a name|the end"),
        ("\\z", "no command"),
        ("CREATE VIEW v AS SELECT 'a", "has no end"),
    ],
)
def test_what_is_wrong_and_what_is_expected(text, message):
    with pytest.raises(OptionError, match=message):
        sql.parse(text)
