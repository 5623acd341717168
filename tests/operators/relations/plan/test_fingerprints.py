"""Fingerprints differ for what means something else; they are equal for what means the same in test_sharing.py."""

from kit.continuous import bound

from upstream.operators.relations.plan.fingerprints import canonical, fingerprint

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
    "SELECT a.n, b.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n",
    "SELECT a.px, b.n FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n",
)


def test_columns_in_another_order_share_a_key():
    one = canonical(bound("SELECT sym, n FROM trade [NOW]").plan)
    other = canonical(bound("SELECT n AS a, sym AS b, n AS c FROM trade [NOW]").plan)
    assert one.key == other.key
    assert other.columns == (one.columns[1], one.columns[0], one.columns[1])
    assert one.width == 2


def test_other_rows_have_another_fingerprint():
    prints: dict[str, list[str]] = {}
    for sql in DIFFERENT:
        prints.setdefault(fingerprint(bound(sql).plan), []).append(sql)
    assert [each for each in prints.values() if len(each) > 1] == []


def test_a_join_of_a_stream_with_itself_has_one_fingerprint_from_both_sides():
    one = "SELECT a.n, b.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n"
    other = "SELECT b.n, a.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n > b.n"
    assert fingerprint(bound(one).plan) == fingerprint(bound(other).plan)
