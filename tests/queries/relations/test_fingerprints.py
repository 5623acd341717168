"""Fingerprints: equal for what means the same, different for what does not."""

from __future__ import annotations

from itertools import combinations

import pytest
from kit.continuous import CATALOG, FORMS, bound

from upstream.queries.relations.fingerprints import canonical, fingerprint
from upstream.queries.relations.nodes import Changes


def print_of(sql: str) -> str:
    return fingerprint(bound(sql).plan)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT sym AS a FROM trade [NOW] WHERE n > 1 AND px < 2",
            "SELECT x.sym AS b FROM trade [NOW] AS x WHERE 2 > px AND 1 < x.n",
        ),
        ("SELECT sym, n FROM (SELECT * FROM trade [NOW]) x", "SELECT sym, n FROM trade [NOW]"),
        (
            "SELECT a.sym, b.bid FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym",
            "SELECT x.sym, q.bid FROM quote [NOW] q JOIN trade [NOW] x ON x.sym = q.sym",
        ),
        (
            "SELECT a.sym, b.bid FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym",
            "SELECT a.sym, b.bid FROM quote [NOW] b RIGHT JOIN trade [NOW] a ON a.sym = b.sym",
        ),
        (
            "SELECT sym, COUNT(*) AS c, MAX(px) AS m FROM trade [NOW] GROUP BY sym, n",
            "SELECT sym, COUNT(1) AS x, MAX(px) AS y FROM trade [NOW] GROUP BY n, sym",
        ),
        (
            "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]",
            "SELECT sym FROM quote [NOW] UNION SELECT sym FROM trade [NOW]",
        ),
        ("SELECT * FROM LATEST(buses)", "SELECT * FROM buses [PARTITION BY vehicle_id ROWS 1]"),
        ("SELECT * FROM trade [PARTITION BY n, sym ROWS 2]", "SELECT * FROM trade [PARTITION BY sym, n ROWS 2]"),
        ("SELECT vehicle_id FROM fast", "SELECT vehicle_id FROM LATEST(buses) WHERE speed > 10"),
        (
            "SELECT sym FROM trade [NOW] a WHERE EXISTS (SELECT 1 FROM quote [NOW] b WHERE a.sym = b.sym)",
            "SELECT sym FROM trade [NOW] WHERE sym IN (SELECT sym FROM quote [NOW])",
        ),
        ("SELECT * FROM trade [RANGE 60 MINUTES]", "SELECT * FROM trade [RANGE 1 HOUR]"),
        ("SELECT sym FROM trade [NOW] WHERE n > 1 AND n > 1", "SELECT sym FROM trade [NOW] WHERE n > 1L"),
    ],
)
def test_the_same_rows_have_one_fingerprint(one: str, other: str) -> None:
    assert print_of(one) == print_of(other)


DIFFERENT = (
    "SELECT sym FROM trade [NOW]",
    "SELECT n FROM trade [NOW]",
    "SELECT sym, n FROM trade [NOW]",
    "SELECT n, sym FROM trade [NOW]",
    "SELECT sym FROM trade [RANGE 1 HOUR]",
    "SELECT sym FROM trade [RANGE 2 HOURS]",
    "SELECT sym FROM trade [RANGE 1 HOUR SLIDE 1 MINUTE]",
    "SELECT sym FROM HOP(trade, t, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
    "SELECT sym FROM trade [ROWS 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1 WHERE n > 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1] WHERE n > 1",
    "SELECT sym FROM trade [NOW] SAMPLE (1)",
    "SELECT sym FROM trade [NOW] TABLESAMPLE (1 PERCENT) REPEATABLE (2)",
    "SELECT sym FROM quote [NOW]",
    "DSTREAM(SELECT sym FROM trade [NOW])",
    "SELECT sym FROM trade [NOW] EMIT CHANGES",
    "SELECT DISTINCT sym FROM trade [NOW]",
    "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]",
    "SELECT sym FROM trade [NOW] UNION ALL SELECT sym FROM quote [NOW]",
    "SELECT sym FROM trade [NOW] EXCEPT SELECT sym FROM quote [NOW]",
    "SELECT sym FROM quote [NOW] EXCEPT SELECT sym FROM trade [NOW]",
    "SELECT a.sym FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT SEMI JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT ANTI JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT sym FROM trade [NOW] WHERE sym NOT IN (SELECT sym FROM quote [NOW])",
    "SELECT sym, COUNT(*) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(px) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(DISTINCT px) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(*) FILTER (WHERE n > 1) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym FROM trade [NOW] ORDER BY n LIMIT 1",
    "SELECT sym FROM trade [NOW] ORDER BY n DESC LIMIT 1",
    "SELECT sym FROM trade [NOW] ORDER BY n LIMIT 2",
)


def test_other_rows_have_another_fingerprint() -> None:
    prints = {sql: print_of(sql) for sql in DIFFERENT}
    for one, other in combinations(DIFFERENT, 2):
        assert prints[one] != prints[other], (one, other)


def test_columns_in_another_order_share_a_key() -> None:
    one = canonical(bound("SELECT sym, n FROM trade [NOW]").plan)
    other = canonical(bound("SELECT n AS a, sym AS b, n AS c FROM trade [NOW]").plan)
    assert one.key == other.key
    assert other.columns == (one.columns[1], one.columns[0], one.columns[1])
    assert one.width == 2


def test_a_join_of_a_stream_with_itself_has_one_key_from_both_sides() -> None:
    one = print_of("SELECT a.n, b.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n")
    other = print_of("SELECT b.n, a.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n > b.n")
    assert one == other
    third = print_of("SELECT a.px, b.n FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n")
    assert third != one


@pytest.mark.parametrize("sql", FORMS)
def test_each_form_has_a_canonical_plan_with_all_columns(sql: str) -> None:
    plan = bound(sql, CATALOG).plan
    made = canonical(plan)
    assert len(made.columns) == len(plan.schema)
    assert all(0 <= each < made.width for each in made.columns)
    if isinstance(plan, Changes):
        assert canonical(plan.source).columns == made.columns
