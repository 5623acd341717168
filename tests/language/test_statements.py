import pytest

from upstream.conf.errors import OptionError
from upstream.language import statements as sql


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
        ("-- why\nEXPLAIN per_route", sql.Explain("per_route")),
        ("/* all */ SHOW VIEWS", sql.Show("VIEW")),
        ("CREATE VIEW v AS SELECT 'a;b'", sql.Create("v", "SELECT 'a;b'", view=True)),
        ("create materialized view Q as\nSELECT 1", sql.Create("Q", "SELECT 1")),
        (
            "CREATE MATERIALIZED VIEW q WITH (weight = 2.5, buckets=4) AS SELECT 1",
            sql.Create("q", "SELECT 1", weight=2.5, buckets=4),
        ),
        ("CREATE MATERIALIZED VIEW `per-route` AS SELECT 1", sql.Create("per-route", "SELECT 1")),
        ("ALTER MATERIALIZED VIEW q AS SELECT 2", sql.Alter("q", text="SELECT 2")),
        ("ALTER MATERIALIZED VIEW q SET (weight = 3)", sql.Alter("q", weight=3.0)),
        ("ALTER MATERIALIZED VIEW q SET (budget = '2 s')", sql.Alter("q", budget="2 s")),
        (
            "CREATE MATERIALIZED VIEW q WITH (queue = 'fifo', Budget = 5, weight = 2) AS SELECT 1",
            sql.Create("q", "SELECT 1", weight=2.0, queue={"queue": "fifo", "budget": "5"}),
        ),
        ("ALTER MATERIALIZED VIEW q PAUSE", sql.Alter("q", active=False)),
        ("ALTER MATERIALIZED VIEW q PAUSE KEEP STATE", sql.Alter("q", active=False, keep_state=True)),
        ("ALTER MATERIALIZED VIEW q RESUME", sql.Alter("q", active=True)),
        ("DROP MATERIALIZED VIEW q", sql.Drop("MATERIALIZED VIEW", "q")),
        ("DROP VIEW v CASCADE", sql.Drop("VIEW", "v", cascade=True)),
        ("REFRESH TABLE t", sql.Refresh("t")),
        ("show materialized views", sql.Show("MATERIALIZED VIEW")),
        ("SHOW SOURCES", sql.Show("SOURCE")),
        ("SHOW CREATE `per-route`", sql.ShowCreate("per-route")),
        ("DESCRIBE buses", sql.Describe("buses")),
        (
            "create function f(x DOUBLE, `a b` DECIMAL(5, 2)) returns ARRAY<STRING> as 'm.n:f'",
            sql.CreateFunction("f", "x DOUBLE, `a b` DECIMAL(5, 2)", "ARRAY<STRING>", "m.n:f"),
        ),
        ("SHOW FUNCTIONS", sql.Show("FUNCTION")),
        ("DROP FUNCTION f CASCADE", sql.Drop("FUNCTION", "f", cascade=True)),
        ("CREATE TABLE t FROM 'lake/t'", sql.CreateTable("t", "lake/t")),
        (
            "CREATE SOURCE s FROM 'a;b' WITH (key = 'k', kafka.sasl.password = env('P'), n = -1, b = TRUE)",
            sql.CreateSource(
                "s", "a;b", {"key": "k", "kafka.sasl.password": sql.Environment("P"), "n": "-1", "b": "true"}
            ),
        ),
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
        ("CREATE INDEX x", "'INDEX' is not expected.*Expected: SOURCE, TABLE, VIEW"),
        ("CREATE TABLE x", "not complete.*Expected: FROM"),
        ("CREATE FUNCTION f(x DOUBLE RETURNS DOUBLE AS 'm:f'", r"not complete.*Expected: \)"),
        ("CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE", "not complete.*Expected: AS"),
        ("CREATE FUNCTION f(x DOUBLE) RETURNS DOUBLE AS m", "'m' is not expected.*in single quotes"),
        ("CREATE SOURCE s FROM 'x'", "no key"),
        ("CREATE SOURCE s FROM 'x' WITH (key = 'k', sasl_password = 'p')", "checkpoint would keep.*env"),
        ("CREATE SOURCE s FROM 'x' WITH (key = 'k', kafka.ssl.keystore.key = 'p')", "checkpoint would keep.*env"),
        ("CREATE SOURCE s FROM 'x' WITH (key = 'k', schema_registry = 'https://u:p@h')", "schema_registry = env"),
        ("CREATE SOURCE s FROM 's3://id:p@b/x' WITH (key = 'k')", r"s3://id:\*\*\*@b/x' has a secret"),
        ("CREATE TABLE t FROM 's3://id:p@b/x'", r"s3://id:\*\*\*@b/x' has a secret"),
        ("CREATE SOURCE s WITH (key = 'k')", "names no place"),
        ("CREATE SOURCE s FROM x", "'x' is not expected.*in single quotes"),
        ("CREATE SOURCE s FROM 'x' WITH (key = k)", "'k' is not expected.*env"),
        ("SHOW ALL", "cannot be shown"),
        ("CREATE VIEW v AS", "not complete.*Expected: a query"),
        ("CREATE VIEW v WITH (weight = 2) AS SELECT 1", "'WITH' is not expected.*Expected: AS"),
        ("CREATE MATERIALIZED VIEW q WITH (weight = 'a') AS SELECT 1", "weight = 'a'.*Expected: a number"),
        ("CREATE MATERIALIZED VIEW q WITH (speed = 1) AS SELECT 1", "WITH .* speed .*weight or buckets or .*queue"),
        ("CREATE VIEW v WITH (queue = 'fifo') AS SELECT 1", "'WITH' is not expected"),
        ("ALTER MATERIALIZED VIEW q SET (queue = 'fifo')", "SET .* queue .*Expected: weight or budget"),
        ("CREATE MATERIALIZED VIEW q WITH (batch_duration = '1 s') AS SELECT 1", "upstream run --batch-duration"),
        ("CREATE MATERIALIZED VIEW q WITH (late = 'd') AS SELECT 1", "CREATE SOURCE .*dead_letter_rows = 'late'"),
        ("CREATE MATERIALIZED VIEW q WITH (weight = 1, weight = 2) AS SELECT 1", "weight is given twice"),
        ("CREATE MATERIALIZED VIEW q WITH (buckets = 1.5) AS SELECT 1", "buckets = 1.5.*a whole number"),
        ("ALTER MATERIALIZED VIEW q SET (buckets = 2)", "SET .* buckets .*Expected: weight"),
        ("ALTER MATERIALIZED VIEW q SET (weight = 2) now", "'now' is not expected.*Expected: the end"),
        ("DROP VIEW", "not complete.*Expected: a name"),
        ("DROP q", "'q' is not expected.*VIEW"),
        ("DROP VIEW v w", "'w' is not expected"),
        ("EXPLAIN", "not complete"),
        ("\\z", "no command"),
        ("CREATE VIEW v AS SELECT 'a", "has no end"),
    ],
)
def test_what_is_wrong_and_what_is_expected(text, message):
    with pytest.raises(OptionError, match=message):
        sql.parse(text)


def test_a_script_has_comments_and_needs_no_last_semicolon():
    found = [*sql.script("-- one\nCREATE VIEW v AS SELECT 1 -- two;\n; -- three\n;\n\\d\nSELECT 2\n")]
    assert [type(each) for each in found] == [sql.Create, sql.Describe, sql.Select]
    assert [*sql.script(" \n -- nothing")] == []


def test_a_text_or_the_file_that_has_it(tmp_path):
    file = tmp_path / "job.sql"
    file.write_text("CREATE VIEW é AS SELECT 1", encoding="utf-8")
    assert sql.text_of(file) == sql.text_of(str(file)) == "CREATE VIEW é AS SELECT 1"
    assert sql.text_of("SELECT 1 -- not a file.sql\n;") == "SELECT 1 -- not a file.sql\n;"
    with pytest.raises(OptionError, match="cannot be read"):
        sql.text_of("absent.sql")
