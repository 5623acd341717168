from kit.continuous import BUSES, DOMAINS, TRADE, relation

from upstream.operators.relations.plan.nodes import Changes, Latest, RowWindow, Sample, UnboundedWindow, WindowOver
from upstream.sql.sources import newest

from .refusals import refusals

test_what_is_refused = refusals(
    ("SELECT * FROM trades", "did you mean 'trade'?", "trades"),
    ("SELECT * FROM nothing", "there are: Domains, Requests, buses", "nothing"),
    ("SELECT * FROM Domains [NOW]", "has no window", "[NOW]"),
    ("SELECT * FROM Domains SAMPLE (1)", "a sample is of a stream", "SAMPLE (1)"),
    ("SELECT * FROM trade SAMPLE (101)", "at most 100", "101"),
    ("SELECT * FROM trade [PARTITION BY smy ROWS 1]", "did you mean 'sym'?", "smy"),
    ("SELECT * FROM trade a [PARTITION BY b.sym ROWS 1]", "columns of 'a' alone", "b.sym"),
    ("SELECT * FROM trade [ROWS 1 WHERE n]", "not a condition", "n"),
    ("SELECT * FROM trade [ROWS 1 WHERE COUNT(*) > 1]", "cannot stand in a window", "COUNT(*)"),
    ("SELECT * FROM fast [NOW]", "the view 'fast' is a relation", "[NOW]"),
    ("SELECT * FROM fast SAMPLE (5)", "and a sample is of a stream", "SAMPLE (5)"),
    ("SELECT * FROM LATEST(trade)", "'trade' has no update key", "LATEST(trade)"),
    ("SELECT * FROM LATEST(Domains)", "LATEST needs a stream", "Domains"),
    ("SELECT * FROM LATEST(fast)", "LATEST needs a stream", "fast"),
    ("SELECT * FROM LATEST(buses, 3)", "takes a stream alone", "3"),
    ("SELECT * FROM LATEST(buses) [NOW]", "a window is of a stream", "[NOW]"),
    ("SELECT * FROM LATEST(buses) SAMPLE (5)", "LATEST(s TABLESAMPLE (1 PERCENT))", "SAMPLE (5)"),
    ("SELECT * FROM TUMBLE(trade, t)", "TUMBLE got 2 arguments", "TUMBLE(trade, t)"),
    ("SELECT * FROM TUMBLE(trade, n, INTERVAL '1' HOUR)", "goes by the event time", "n"),
    ("SELECT * FROM TUMBLE(trade, t, 5)", "not a length of time", "5"),
    ("SELECT * FROM HOP(trade, t, INTERVAL '1' HOUR, INTERVAL '1' MINUTE)", "rows would be lost", "INTERVAL '1' HOUR"),
    ("SELECT * FROM HOP((SELECT sym FROM trade [NOW]), t, INTERVAL '1' HOUR, INTERVAL '1' HOUR)", "needs a stream", ""),
)


def test_stored_relations_are_whole():
    assert relation("SELECT * FROM domains") == WindowOver(DOMAINS, UnboundedWindow())
    assert relation("SELECT * FROM domains [RANGE UNBOUNDED]") == WindowOver(DOMAINS, UnboundedWindow())


def test_samples_stand_below_and_make_a_subquery_a_stream():
    assert relation("SELECT * FROM LATEST(buses TABLESAMPLE (10 PERCENT))") == WindowOver(Sample(BUSES, 10.0), Latest())
    seeded = relation("SELECT * FROM trade [NOW] TABLESAMPLE (2.5 PERCENT) REPEATABLE (7)")
    assert seeded.stream == Sample(TRADE, 2.5, 7)
    plan = relation("SELECT * FROM (SELECT sym FROM trade [NOW]) AS x SAMPLE (5)")
    assert isinstance(plan.stream, Sample)
    assert isinstance(plan.stream.source, Changes)
    assert plan.window == UnboundedWindow()


def test_the_newest_rows_of_a_key():
    assert newest(BUSES, 1, ("vehicle_id",), None) == Latest()
    assert newest(BUSES, 2, ("vehicle_id",), None) == RowWindow(2, ("vehicle_id",))
    assert newest(TRADE, 1, (), None) == RowWindow(1)
    assert newest(None, 1, ("a",), None) == RowWindow(1, ("a",))
