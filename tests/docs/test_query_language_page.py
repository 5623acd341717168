"""Each query on the page on the query language is evaluated, and its error is the one that is shown."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from kit.continuous import BUSES, CATALOG, DOMAINS, QUOTE, REQUESTS, TRADE
from kit.evaluated import changes
from kit.places import ROOT

from upstream.conf.errors import QueryRefusedError
from upstream.queries.language import bind

ROWS = {
    TRADE: [("a", 1.0, 3, 1), ("a", 9.0, 4, 5), ("b", 2.0, 3, 7), ("a", 2.5, 1, 200)],
    QUOTE: [("a", 1.5, 1), ("a", 8.0, 4), ("b", 1.0, 6)],
    BUSES: [("x", "r1", 12.0, 1), ("y", "r1", 3.0, 2), ("x", "r2", 14.0, 30)],
    REQUESTS: [
        (1, "stanford.edu", "http://cs.stanford.edu/a", 1),
        (2, "shop.com", "http://shop.com/b", 2),
        (1, "stanford.edu", "http://ee.stanford.edu/", 3),
    ],
    DOMAINS: [("shop.com", "commerce"), ("stanford.edu", "study")],
}
"""Of each stream, with times in minutes."""

PAGE = (ROOT / "docs" / "query-language.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
WINDOWS = re.findall(r"^\| `((?:s |s\[|LATEST|TUMBLE|HOP)[^`]*)`", PAGE, re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert len(QUERIES) >= 11
    assert len(WINDOWS) >= 10


@pytest.mark.parametrize("sql", QUERIES)
def test_examples_are_evaluated(sql: str) -> None:
    names = bind(sql, CATALOG).schema.names
    found = changes(sql, ROWS, end=24 * 60, unit=timedelta(minutes=1))
    if "SAMPLE" not in sql:
        assert any(any(value is not None for value in row[: len(names)]) for row in found), "it has rows"
    assert all(len(row) == len(names) + 2 for row in found)


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_bound(window: str) -> None:
    stream = "buses" if window.startswith("LATEST") else "trade"
    source = re.sub(r"\bs\b", stream, window).replace("BY k", "BY sym").replace("WHERE p", "WHERE n > 1")
    assert bind(f"SELECT COUNT(*) FROM {source}", CATALOG).reads == (stream,)


def test_the_error_is_the_one_that_is_shown() -> None:
    sql, shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[:2]
    with pytest.raises(QueryRefusedError) as caught:
        bind(sql, CATALOG)
    message, _, excerpt = str(caught.value).partition("\n")
    assert " ".join(shown.split("\n    ")[0].split()) == message
    assert shown.rstrip("\n").endswith(excerpt)
