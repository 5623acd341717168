"""Slow and lazy flush of windows in a tester, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError
from upstream.testing import StreamTester


def at(minute: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)


def row(key: str, minute: float) -> dict[str, Any]:
    return {"k": key, "at": at(minute)}


def made(*window: Any, **options: Any) -> StreamTester:
    def steps(stream: Any) -> Any:
        return stream.window(*window, **{"output": "all", "shards": 1, **options}).agg(n=us.count())

    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    return StreamTester(steps, "k STRING, at TIMESTAMP", key="k", event_time="at", watermark=watermark)


def keys(rows: list[dict[str, Any]]) -> list[str]:
    return [each["k"] for each in rows]


def test_slow_flush_needs_no_rows_and_ends() -> None:
    t = made("5 minutes", flush="slow", flush_rows=2)
    t.batch([row(key, 1) for key in "abcde"])
    assert keys(t.batch(punctuation=at(5))) == ["a", "b"]
    t.restart()
    assert keys(t.batch()) == ["c", "d"]
    assert keys(t.batch()) == ["e"]
    t.batch([row("a", 6), row("b", 6), row("c", 6)])
    assert sorted(keys(t.end())) == ["a", "b", "c"]


def test_lazy_flush_waits_for_the_keys_next_row_or_later_windows() -> None:
    t = made("5 minutes", flush="lazy", flush_windows=2)
    t.batch([row(key, 1) for key in "abc"])
    assert t.batch(punctuation=at(5)) == []
    assert keys(t.batch([row("b", 6)])) == ["b"]
    t.restart()
    assert t.batch(punctuation=at(14.9)) == []
    assert sorted(keys(t.batch(punctuation=at(15)))) == ["a", "c"]
    assert keys(t.end()) == ["b"]


def test_a_window_over_windows_waits_for_results_that_have_not_left() -> None:
    """Punctuation follows the results: else the outer window would close without some of them."""

    def steps(stream: Any) -> Any:
        inner = stream.window("1 minute", output="all", shards=1, flush="slow", flush_rows=1).agg(n=us.count())
        return inner.window("5 minutes", output="all", shards=1).agg(total=us.sum("n"))

    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    t = StreamTester(steps, "k STRING, at TIMESTAMP", key="k", event_time="at", watermark=watermark)
    t.batch([row("a", minute) for minute in (0.1, 1.1, 2.1, 3.1, 4.1)])  # the first result leaves
    found = t.batch(punctuation=at(5))
    for _ in range(3):
        assert found == []
        found = t.batch()
    assert [(each["k"], each["total"]) for each in found] == [("a", 5)]
    assert t.late == []


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        (["5 minutes"], {"flush": "never"}, "flush='never'. Expected: 'eager'.*'slow'.*'lazy'"),
        (["5 minutes"], {"flush": "slow"}, "flush='slow' with flush_rows=None"),
        (["5 minutes"], {"flush": "lazy", "flush_rows": 5}, "flush='lazy' with flush_rows=5"),
        (["5 minutes"], {"flush": "slow", "flush_rows": 3, "shards": 4}, "flush_rows=3 for 4 shards"),
        (["5 minutes"], {"flush_windows": 2}, "flush_windows=2 with flush='eager'"),
        (["5 minutes"], {"flush": "lazy", "flush_windows": 0}, "flush_windows=0"),
        (["10 rows"], {"flush": "slow", "flush_rows": 5}, "flush='slow' with windows over rows"),
        (["5 minutes", "1 row"], {"flush": "lazy"}, "flush='lazy' with windows that slide by row"),
    ],
)
def test_what_makes_no_sense_is_refused(window: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        made(*window, **options)
