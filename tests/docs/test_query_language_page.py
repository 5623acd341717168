"""Each query on the page on the query language is bound, and its error is the one that is shown."""

from __future__ import annotations

import re

import pytest
from kit.continuous import CATALOG
from kit.places import ROOT

from upstream.conf.errors import QueryRefusedError
from upstream.queries.language import bind

PAGE = (ROOT / "docs" / "query-language.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
WINDOWS = re.findall(r"^\| `((?:s |s\[|LATEST|TUMBLE|HOP)[^`]*)`", PAGE, re.MULTILINE)


def test_the_page_has_examples() -> None:
    assert len(QUERIES) >= 11
    assert len(WINDOWS) >= 10


@pytest.mark.parametrize("sql", QUERIES)
def test_examples_are_bound(sql: str) -> None:
    assert bind(sql, CATALOG).schema.names


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
