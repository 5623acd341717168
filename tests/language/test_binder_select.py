import pytest
from kit.continuous import CATALOG, bound, refused

from upstream.hosting.host_plan import rehearse
from upstream.operators.relations.plan.nodes import Changes


@pytest.mark.parametrize(
    ("sql", "stream"),
    [
        ("SELECT sym FROM trade [NOW]", True),
        ("SELECT * FROM Requests", True),
        ("SELECT DISTINCT sym FROM trade", True),
        ("SELECT COUNT(*) FROM trade", False),
        ("SELECT sym FROM trade GROUP BY sym", False),
        ("SELECT * FROM Domains", False),
        ("SELECT a.sym FROM trade [NOW] a, LATEST(buses) b", True),
        ("SELECT domain FROM Domains WHERE domain IN (SELECT domain FROM Requests)", False),
        ("SELECT sym FROM (SELECT sym, COUNT(*) AS n FROM trade GROUP BY sym) x WHERE n > 3", False),
        ("SELECT sym FROM (SELECT sym FROM trade [NOW]) x", True),
        ("SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]", True),
        ("SELECT 1 AS one FROM trade [NOW] HAVING COUNT(*) > 0", False),
        ("SELECT sym FROM trade [NOW] GROUP BY sym ORDER BY MAX(n) LIMIT 1", False),
        ("SELECT route_id FROM LATEST(buses) WHERE speed > 1", False),
        ("SELECT sym, SUM(n) OVER (ORDER BY t) AS s FROM trade", True),
        ("SELECT sym FROM trade QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 1", True),
        ("SELECT sym, RANK() OVER (ORDER BY n) AS r FROM trade [NOW]", False),
        ("SELECT sym, LAG(n) OVER (ORDER BY t) AS l FROM trade", True),
        ("SELECT sym FROM trade [NOW] QUALIFY RANK() OVER (ORDER BY n) = 1", False),
    ],
)
def test_rows_of_a_stream_are_a_stream_by_default(sql, stream):
    assert isinstance(bound(sql).plan, Changes) == stream


def test_a_subquery_in_from_reads_no_column_of_the_query_around():
    for column, source in (
        ("x.n", "SELECT n FROM quote [NOW] WHERE a.sym = sym"),
        ("x.s", "SELECT a.sym AS s FROM quote [NOW]"),
    ):
        refused(f"SELECT {column} FROM trade [NOW] AS a, ({source}) AS x", "no source 'a'", at="a.sym")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("SELECT CAST('x' AS INT) AS c FROM trade", "CAST('x' AS INT)"),
        ("SELECT sym FROM trade WHERE n > CAST('x' AS INT)", "CAST('x' AS INT)"),
        ("SELECT SUM(n + 1 / 0) AS c FROM trade [RANGE 1 HOUR]", "1 / 0"),
        ("SELECT DATE '5874897-12-31' AS d FROM trade", "DATE '5874897-12-31'"),
        ("SELECT a.sym FROM trade [NOW] AS a JOIN quote [NOW] AS b ON a.sym = b.sym AND a.n = 1 / 0", "1 / 0"),
    ],
)
def test_constants_that_no_row_can_mend_are_refused(text, at):
    refused(text, "has a value in no row", at=at)
    refused("SELECT * FROM v", "in the view 'v'", "has a value in no row", catalog=CATALOG.with_view("v", text))


@pytest.mark.parametrize(
    "expression",
    [
        "IF(n = 1, 5, CAST('x' AS INT))",
        "COALESCE(n, 1 / 0)",
        "NANVL(px, 1 / 0)",
        "n > 1 AND 1 / 0 > 1",
        "TRY_CAST('x' AS INT)",
        "TRY_ADD('x', 1)",
        "n / NULL",
    ],
)
def test_constants_that_a_row_may_not_need_are_taken(expression):
    bound(f"SELECT {expression} AS c FROM trade [RANGE 1 HOUR]")


def test_null_is_a_condition_only_where_spark_takes_it_for_one():
    for text in (
        "SELECT sym FROM trade WHERE NULL",
        "SELECT sym FROM trade WHERE (NULL)",
        "SELECT a.sym FROM trade [NOW] AS a JOIN quote [NOW] AS b ON NULL",
        "SELECT COUNT(*) FILTER (WHERE NULL) AS n FROM trade",
    ):
        refused(text, "NULL, not a condition", at="NULL")
    for text in (
        "SELECT sym FROM trade [NOW] WHERE NULL AND n > 1",
        "SELECT sym FROM trade [NOW] WHERE NOT NULL",
        "SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym HAVING NULL",
    ):
        rehearse(bound(text).plan, "q", "/nowhere/q", 1)


def test_a_column_cannot_be_named_by_control_characters():
    refused("SELECT sym AS `a\0b` FROM trade", r"named 'a\x00b'", "control characters")
