from .refusals import refusals

test_refusals = refusals(
    ("SELECT px FROM trade [RANGE 10]", "RANGE 10 SECONDS", "]"),
    ("SELECT px FROM trade [RANGE 10 MINUTS]", "a unit of time", "MINUTS"),
    ("SELECT px FROM trade [RANGE 1 MONTH]", "no fixed length", "1 MONTH"),
    ("SELECT px FROM trade [ROWS 2 SLIDE 1 MINUTE]", "]", "SLIDE"),
    ("SELECT px FROM trade [RANGE UNBOUNDED SLIDE 1 MINUTE]", "RANGE that ends", "SLIDE"),
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
    ("SELECT px FROM SESSION(trade, t)", "HOP, TUMBLE, LATEST", "SESSION"),
    ("SELECT px FROM (VALUES (1))", "a query in brackets", "VALUES"),
)
