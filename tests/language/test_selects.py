import pytest
from kit.continuous import bound, only, refused, relation
from kit.refusals import refusals

from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.nodes import Changes, Top, Where


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


def windows(sql: str) -> list[object]:
    return [each.window for each in nodes.walk(relation(sql)) if isinstance(each, nodes.WindowOver)]


def test_a_frame_of_rows_is_the_newest_rows_that_fulfil_the_condition():
    plan = relation("SELECT SUM(n) OVER (PARTITION BY sym, n ORDER BY t ROWS 3 PRECEDING) AS s FROM trade WHERE px > 1")
    now, rows, _ = windows("SELECT SUM(n) OVER (PARTITION BY sym, n ORDER BY t ROWS 3 PRECEDING) AS s FROM trade")
    assert (now, rows) == (nodes.Now(), nodes.RowWindow(4, ("sym", "n")))
    kept = next(
        each.window
        for each in nodes.walk(plan)
        if isinstance(each, nodes.WindowOver) and isinstance(each.window, nodes.RowWindow)
    )
    assert str(kept.where) == "(px > cast(1 AS DOUBLE))"
    sql = "SELECT SUM(n) OVER (ORDER BY t ROWS BETWEEN {} AND CURRENT ROW) AS s FROM trade"
    assert windows(sql.format("CURRENT ROW"))[1] == nodes.RowWindow(1)
    assert windows(sql.format("UNBOUNDED PRECEDING"))[1] == nodes.UnboundedWindow()


test_windows_that_are_refused = refusals(
    ("PARTITION BY sym", "goes by the event time", "SUM(n) OVER (PARTITION BY sym)"),
    ("ORDER BY n", "goes by the event time", "ORDER BY n"),
    ("ORDER BY t DESC", "ORDER BY t", "ORDER BY t DESC"),
    ("PARTITION BY upper(sym) ORDER BY t ROWS 3 PRECEDING", "of columns", "upper(sym)"),
    ("ORDER BY t ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING", "from rows before the row", ""),
    ("ORDER BY t ROWS 1.5 PRECEDING", "no whole number", "1.5"),
    ("ORDER BY t RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "from a time before the row", ""),
    ("ORDER BY t RANGE 3 PRECEDING", "no length of time", ""),
    ("ORDER BY t RANGE INTERVAL '1' MONTH PRECEDING", "no fixed length", ""),
    ("PARTITION BY t ORDER BY t", "GROUP BY would keep", ""),
    of="SELECT SUM(n) OVER ({}) FROM trade",
)
OVER = "OVER (ORDER BY t)"
test_over_that_is_refused = refusals(
    (f"SELECT RANK() {OVER} FROM trade", "RANK OVER", f"RANK() {OVER}"),
    (f"SELECT upper(sym) {OVER} FROM trade", "QUALIFY ROW_NUMBER()", ""),
    (f"SELECT SUM(n) {OVER} FROM trade [NOW]", "over a stream alone", f"SUM(n) {OVER}"),
    ("SELECT SUM(speed) OVER (ORDER BY timestamp) FROM LATEST(buses)", "over a stream alone", ""),
    (f"SELECT SUM(n) {OVER} FROM trade, Domains", "over a stream alone", ""),
    (f"SELECT SUM(n) {OVER}, COUNT(*) FROM trade", "not supported in SELECT", f"SUM(n) {OVER}"),
    (f"SELECT SUM(n) {OVER} FROM trade QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 1", "QUALIFY beside OVER", ""),
)
NOW = "FROM trade [NOW]"


def test_qualify_with_a_condition_beside_the_rank():
    plan = relation(f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px, n DESC) < 3 AND n > 1")
    top = only(plan, Top)
    assert (top.n, [str(each) for each in top.by]) == (2, ["sym"])
    assert [(each.descending, each.nulls_first) for each in top.order] == [(False, True), (True, False)]
    assert isinstance(only(plan, Where).source, Top)


test_qualify_that_is_refused = refusals(
    (f"SELECT sym {NOW} QUALIFY n > 1", "no function with OVER", "QUALIFY n > 1"),
    (f"SELECT sym {NOW} QUALIFY RANK() OVER (ORDER BY n) = 1", "ROW_NUMBER()", "RANK() OVER (ORDER BY n) = 1"),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym) = 1", "needs ORDER BY", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 2", "= 1, or <= n", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) <= 0", "= 1, or <= n", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n ROWS 3 PRECEDING) = 1", "takes no frame", ""),
    (
        f"SELECT sym, COUNT(*) {NOW} GROUP BY sym QUALIFY ROW_NUMBER() OVER (ORDER BY sym) = 1",
        "aggregate in a subquery",
        "",
    ),
)
