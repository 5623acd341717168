"""SELECT takes groups or rows, and gives a stream by default if it has rows of a stream."""

from __future__ import annotations

import pytest
from kit.continuous import bound, refused

from upstream.queries.relations.nodes import Changes


@pytest.mark.parametrize(
    ("sql", "stream"),
    [
        ("SELECT sym FROM trade [NOW]", True),
        ("SELECT sym, COUNT(*) AS n FROM trade [NOW] GROUP BY sym", False),
        ("SELECT 1 AS one FROM trade [NOW] HAVING COUNT(*) > 0", False),
        ("SELECT sym FROM trade [NOW] GROUP BY sym ORDER BY MAX(n) LIMIT 1", False),
        ("SELECT route_id FROM LATEST(buses) WHERE speed > 1", False),
        ("SELECT sym, SUM(n) OVER (ORDER BY t) AS s FROM trade", True),
        ("SELECT sym FROM trade QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 1", True),
    ],
)
def test_rows_of_a_stream_are_a_stream_by_default(sql: str, stream: bool) -> None:
    assert isinstance(bound(sql).plan, Changes) == stream


def test_a_subquery_in_from_reads_no_column_of_the_query_around() -> None:
    refused(
        "SELECT x.n FROM trade [NOW] AS a, (SELECT n FROM quote [NOW] WHERE a.sym = sym) AS x",
        "no source 'a'",
        at="a.sym",
    )
    refused("SELECT x.s FROM trade [NOW] AS a, (SELECT a.sym AS s FROM quote [NOW]) AS x", "no source 'a'", at="a.sym")
