from kit.refusals import refusals

from upstream.language.dialect import ContinuousSql, parse

test_refusals = refusals(
    ("", "the end of the query", ""),
    ("   ", "SELECT", ""),
    ("SELECT 1 FROM trade; SELECT 2 FROM trade", "2 queries", ""),
    ("INSERT INTO x SELECT * FROM trade", "SELECT", "INSERT"),
    ("SELECT * FROM trade WHERE", "the end of the query", ""),
    ("SELECT * trade", "FROM", "trade"),
    ("SELECT FROM trade", "an expression", "FROM"),
    ("SELECT px, FROM trade", "an expression", "FROM"),
    ("SELECT (px FROM trade", ")", "FROM"),
    ("SELECT px FROM trade OFFSET 3", "LIMIT n", "OFFSET"),
    ("SELECT px FROM trade WINDOW w AS (ORDER BY t)", "OVER", "WINDOW"),
    ("SELECT px FROM trade GROUP BY ALL", "name the columns", "ALL"),
    ("SELECT px FROM trade EMIT", "CHANGES, EARLY, ON WINDOW CLOSE or PERIODIC", ""),
    ("SELECT px FROM trade EMIT PERIODIC 5 SECONDS", "INTERVAL", "5"),
    ("SELECT COUNT(*) AS n FROM TUMBLE(trade, t, INTERVAL '1' HOUR) EMIT EAGER", "emit='eager'", "EAGER"),
    ("SELECT COUNT(*) AS n FROM trade EMIT EAGER", "emit='eager'", "EAGER"),
    ("SELECT px FROM trade WHERE px > 1 WHERE px > 2", "the end of the query", "WHERE"),
    ("SELECT px FROM trade HAVING px > 1 GROUP BY px", "the end of the query", "GROUP BY"),
    ("SELECT px FROM trade LIMIT 5 ORDER BY px", "the end of the query", "ORDER BY"),
    ("ISTREAM(SELECT px FROM trade) LIMIT 3", "inside of ISTREAM", ""),
    ("ISTREAM(DSTREAM(SELECT px FROM trade [NOW]))", "is of a relation", ""),
    ("ISTREAM SELECT px FROM trade", "(", "SELECT"),
    ("ISTREAM(SELECT px FROM trade) UNION SELECT px FROM trade", "set operations are over relations", ""),
    ("WITH RECURSIVE x AS (SELECT 1 FROM trade) SELECT * FROM x", "not supported", "RECURSIVE"),
    ("SELECT px FROM trade /*+ BROADCAST(x) */ WHERE px > 1 ORDER", "the end of the query", "ORDER"),
    ("SELECT px AS select FROM trade", "backquotes", "select"),
    ("SELECT px FROM trade [RANGE 10]", "RANGE 10 SECONDS", "]"),
    ("SELECT px FROM trade [RANGE 10 MINUTS]", "a unit of time", "MINUTS"),
    ("SELECT px FROM trade [RANGE 1 MONTH]", "no fixed length", "1 MONTH"),
    ("SELECT px FROM trade [ROWS 2 SLIDE 1 MINUTE]", "ROWS slide by rows", "MINUTE"),
    ("SELECT px FROM trade [ROWS UNBOUNDED]", "[RANGE UNBOUNDED]", "UNBOUNDED"),
    ("SELECT px FROM trade [ROWS 0]", "whole number", "0"),
    ("SELECT px FROM trade [ROWS 1.5]", "whole number", "1.5"),
    ("SELECT px FROM trade [TUMBLING 5 MINUTES]", "RANGE, ROWS or NOW", "TUMBLING"),
    ("SELECT px FROM trade [NOW", "the end of the query", ""),
    ("SELECT px FROM trade [NOW] [NOW]", "second window", "["),
    ("SELECT px FROM trade a [NOW] b", "second alias", "b"),
    ("SELECT px FROM trade AS a(x, y)", "column names", "("),
    ("SELECT px FROM trade NATURAL JOIN quote", "USING", "NATURAL"),
    ("SELECT px FROM trade LEFT CROSS JOIN quote", "no LEFT CROSS JOIN", "LEFT"),
    ("SELECT px FROM trade JOIN quote", "ON or USING", ""),
    ("SELECT px FROM trade CROSS JOIN quote ON TRUE", "CROSS JOIN has no condition", ""),
    ("SELECT px FROM db.trade", "backquotes", "."),
    ("SELECT px FROM HOPPING(trade, t)", "HOP, TUMBLE, SESSION, LATEST", "HOPPING"),
    ("SELECT px FROM trade a JOIN quote FOR SYSTEM_TIME AS OF a.t AS b ON TRUE", "leave it out", "FOR"),
    ("SELECT px FROM TABLE(trade)", "no table function TRADE", "trade"),
    ("SELECT px FROM (VALUES (1))", "a query in brackets", "VALUES"),
)


def test_clauses_may_be_left_out_and_words_be_names():
    tree = parse("SELECT date, timestamp, range, rows, `select`, t.end FROM s t")
    assert [each.name for each in tree.expressions] == ["date", "timestamp", "range", "rows", "select", "end"]
    assert parse("SELECT 1 FROM s;").sql(ContinuousSql) == "SELECT 1 FROM s"
    assert parse("SELECT ALL 1 FROM s") == parse("select 1 from s")


def test_a_table_function_may_be_in_the_brackets_of_table():
    plain = parse("SELECT n FROM TUMBLE(trade, t, INTERVAL '1' HOUR) AS w")
    assert parse("SELECT n FROM TABLE(TUMBLE(TABLE trade, DESCRIPTOR(t), INTERVAL '1' HOUR)) AS w") == plain
