import pytest
from kit.continuous import bound, refused

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
