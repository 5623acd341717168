import pyarrow as pa
import pytest
from kit.continuous import BUSES, DOMAINS, TRADE, only, relation
from kit.refusals import refusals

from upstream.expressions.nodes import Call, Field
from upstream.language.sources import equalities, newest
from upstream.operators.relations.plan.nodes import (
    Changes,
    Join,
    Latest,
    Project,
    RowWindow,
    Sample,
    UnboundedWindow,
    WindowOver,
)

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
    ("SELECT * FROM trade TABLESAMPLE (1 PERCENT) REPEATABLE (2147483648) [NOW]", "in its range", "2147483648"),
    ("SELECT * FROM HOP((SELECT sym FROM trade [NOW]), t, INTERVAL '1' HOUR, INTERVAL '1' HOUR)", "no column 't'", "t"),
    ("SELECT * FROM TUMBLE(fast, speed, INTERVAL '1' HOUR)", "rows leave this relation", "fast"),
    ("SELECT * FROM TUMBLE(Domains, type, INTERVAL '1' HOUR)", "no window would ever close", "type"),
    ("SELECT * FROM TUMBLE((SELECT sym, n, t FROM trade [NOW]), n, INTERVAL '1' HOUR)", "an event time, t", "n"),
    ("SELECT * FROM TUMBLE((SELECT t AS s FROM trade), t, INTERVAL '1' HOUR)", "TUMBLE(this subquery, s, …)", "t"),
    (
        "SELECT * FROM LATEST((SELECT * FROM buses))",
        "LATEST needs a stream with an update key",
        "(SELECT * FROM buses)",
    ),
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


BOTH = "trade [NOW] AS a {} quote [NOW] AS b"


@pytest.mark.parametrize(
    ("join", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL OUTER JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
        ("SEMI JOIN", "semi"),
        ("LEFT ANTI JOIN", "anti"),
    ],
)
def test_kinds_of_joins(join, how):
    made = only(relation(f"SELECT a.sym FROM {BOTH.format(join)} ON b.sym = a.sym AND a.px < b.bid"), Join)
    assert made.how == how
    assert made.on == ((Field("sym", pa.string()), Field("b.sym", pa.string())),)
    assert str(made.condition) == "(px < bid)"


def test_columns_of_one_name_get_the_source_before_it_or_are_merged_by_using():
    plan = only(relation(f"SELECT * FROM {BOTH.format('CROSS JOIN')}".replace("*", "a.sym AS x, b.sym AS y")), Join)
    assert plan.schema.names == ["sym", "px", "n", "t", "b.sym", "bid", "b.t"]
    assert isinstance(plan.right, Project)
    three = relation("SELECT a.n, b.n AS n2, c.n AS n3 FROM trade [NOW] a, trade [NOW] b, trade [NOW] c")
    assert three.schema.names == ["n", "n2", "n3"]
    plan = relation(f"SELECT * FROM {BOTH.format('FULL JOIN')} USING (sym)".replace("*", "sym, px, bid"))
    assert str(dict(plan.columns)["sym"]) == "coalesce(sym, b.sym)"
    right = relation(f"SELECT sym FROM {BOTH.format('RIGHT JOIN')} USING (sym)")
    assert str(dict(right.columns)["sym"]) == "b.sym"
    left = relation(f"SELECT sym, a.sym AS x, b.sym AS y FROM {BOTH.format('LEFT JOIN')} USING (sym)")
    assert [str(each) for _, each in left.columns] == ["sym", "sym", "b.sym"]
    star = relation(f"SELECT * FROM {BOTH.format('JOIN')} USING (sym, t)")
    assert star.schema.names == ["sym", "t", "px", "n", "bid"]
    again = relation("SELECT sym FROM trade [NOW] a JOIN quote [NOW] b USING (sym) JOIN quote [NOW] c USING (sym)")
    assert again.schema.names == ["sym"]


test_sessions_that_are_refused = refusals(
    ("SELECT sym FROM SESSION(trade, t, INTERVAL '5' MINUTES)", "'trade' has no update key", ""),
    ("SELECT n FROM SESSION(trade PARTITION BY symb, t, INTERVAL '5' MINUTES)", "did you mean 'sym'?", "symb"),
    ("SELECT n FROM SESSION(buses, INTERVAL '5' MINUTES)", "SESSION got 2 arguments", ""),
    ("SELECT n FROM SESSION(buses, speed, INTERVAL '5' MINUTES)", "goes by the event time of buses", "speed"),
)


test_joins_that_are_refused = refusals(
    (f"SELECT sym FROM {BOTH.format('JOIN')} ON a.sym = b.sym", "'sym' is ambiguous", "sym"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym", "not a condition", "a.sym"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} USING (symb)", "did you mean 'sym'?", "symb"),
    (f"SELECT b.bid FROM {BOTH.format('SEMI JOIN')} USING (sym)", "there is no source 'b'", "b.bid"),
    ("SELECT a.n FROM trade [NOW] a, quote [NOW] A", "two sources are named 'A'", "quote [NOW] A"),
    ("SELECT a.n FROM trade [NOW] a, quote [NOW] b RIGHT JOIN quote [NOW] c ON a.sym = c.sym", "write CROSS JOIN", ""),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym = b.sym AND COUNT(*) > 1", "cannot stand in ON", "COUNT(*)"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym = b.sym AND a.n IN (SELECT n FROM trade)", "in ON", ""),
    (f"SELECT * FROM {BOTH.format('JOIN')} ON a.sym = b.sym", "two columns are named 'sym'", "*"),
    (f"SELECT n FROM {BOTH.format('ASOF FULL JOIN')} ON a.t >= b.t", "there is no ASOF FULL JOIN", "ASOF"),
    (f"SELECT n FROM {BOTH.format('ASOF JOIN')} ON a.sym = b.sym", "ON l.k = r.k AND l.t >= r.t", "a.sym = b.sym"),
    (f"SELECT n FROM {BOTH.format('ASOF JOIN')} ON a.t < b.t AND px < 1", "by one comparison", "a.t < b.t AND px < 1"),
    (f"SELECT n FROM {BOTH.format('ASOF JOIN')} MATCH_CONDITION (a.t <> b.t)", "by one comparison", "a.t <> b.t"),
    (f"SELECT n FROM {BOTH.format('ASOF JOIN')} MATCH_CONDITION (a.t > a.t)", "by one comparison", "a.t > a.t"),
    ("SELECT n FROM trade a ASOF JOIN quote b ON a.t > b.t", "a.t >= b.t over two streams", "trade a"),
    ("SELECT n FROM trade ASOF JOIN quote [NOW] b ON trade.t >= b.t", "[RANGE 1 HOUR] or LATEST(s)", "trade"),
)


def test_equalities_are_pairs_of_both_sides():
    a, b = Field("a", pa.int64()), Field("b", pa.int64())
    same = Call("eq", (b, a), pa.bool_())
    less = Call("lt", (a, b), pa.bool_())
    alone = Call("eq", (a, a), pa.bool_())
    condition = Call("and", (Call("and", (same, less), pa.bool_()), alone), pa.bool_())
    assert equalities(condition, {"a"}, {"b"}) == ([(a, b)], [less, alone])
    assert equalities(None, {"a"}, {"b"}) == ([], [])
