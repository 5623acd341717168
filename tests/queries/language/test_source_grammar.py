"""What the grammar of FROM refuses: each with its place, and what would work."""

import pytest
from kit.continuous import refused


@pytest.mark.parametrize(
    ("sql", "at", "parts"),
    [
        ("SELECT px FROM trade [RANGE 10]", "]", ["RANGE 10 SECONDS"]),
        ("SELECT px FROM trade [RANGE 10 MINUTS]", "MINUTS", ["a unit of time"]),
        ("SELECT px FROM trade [RANGE 1 MONTH]", "1 MONTH", ["no fixed length"]),
        ("SELECT px FROM trade [ROWS 2 SLIDE 1 MINUTE]", "SLIDE", ["]"]),
        ("SELECT px FROM trade [RANGE UNBOUNDED SLIDE 1 MINUTE]", "SLIDE", ["RANGE that ends"]),
        ("SELECT px FROM trade [ROWS UNBOUNDED]", "UNBOUNDED", ["[RANGE UNBOUNDED]"]),
        ("SELECT px FROM trade [ROWS 0]", "0", ["whole number"]),
        ("SELECT px FROM trade [ROWS 1.5]", "1.5", ["whole number"]),
        ("SELECT px FROM trade [TUMBLING 5 MINUTES]", "TUMBLING", ["RANGE, ROWS or NOW"]),
        ("SELECT px FROM trade [NOW", "", ["the end of the query"]),
        ("SELECT px FROM trade [NOW] [NOW]", "[", ["second window"]),
        ("SELECT px FROM trade a [NOW] b", "b", ["second alias"]),
        ("SELECT px FROM trade AS a(x, y)", "(", ["column names"]),
        ("SELECT px FROM trade NATURAL JOIN quote", "NATURAL", ["USING"]),
        ("SELECT px FROM trade LEFT CROSS JOIN quote", "LEFT", ["no LEFT CROSS JOIN"]),
        ("SELECT px FROM trade JOIN quote", "", ["ON or USING"]),
        ("SELECT px FROM trade CROSS JOIN quote ON TRUE", "", ["CROSS JOIN has no condition"]),
        ("SELECT px FROM db.trade", ".", ["backquotes"]),
        ("SELECT px FROM SESSION(trade, t)", "SESSION", ["HOP, TUMBLE, LATEST"]),
        ("SELECT px FROM (VALUES (1))", "VALUES", ["a query in brackets"]),
    ],
)
def test_refusals(sql: str, at: str, parts: list[str]) -> None:
    refused(sql, *parts, at=at)
