"""Session windows of a fluent stream, without Spark."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester

SCHEMA = "k STRING, at TIMESTAMP, v BIGINT"
NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def make_tester(steps: Any, **more: Any) -> StreamTester:
    given = {"event_time": "at", "watermark": us.Watermark.bounded("5 minutes"), **more}
    return StreamTester(steps, SCHEMA, key="k", **given)


def rows(*each: tuple[str, float, int]) -> list[dict[str, Any]]:
    return [{"k": key, "at": at(minute), "v": value} for key, minute, value in each]


def test_a_late_row_that_joins_two_sessions_leaves_one_in_the_table():
    def steps(stream: Any) -> Any:
        return stream.session_window("10 minutes", shards=2, emit="all", lateness="1 hour").agg(
            n=us.count(), total=us.sum("v")
        )

    tester = make_tester(steps)
    tester.batch(rows(("a", 0, 1), ("a", 15, 2), ("b", 1, 4)), punctuation=at(40))
    key = ("k", "window_id")
    found = [(row["k"], row["window_start"], row["total"]) for row in tester.latest(key=key)]
    assert found == [("a", at(0), 1), ("a", at(15), 2), ("b", at(1), 4)]
    tester.restart()
    merged = tester.batch(rows(("a", 8, 8)))
    assert [row["window_start"] for row in merged if "_upstream" in row] == [at(15)]
    got = [(row["k"], row["window_start"], row["window_end"], row["n"], row["total"]) for row in tester.latest(key=key)]
    assert got == [("a", at(0), at(25), 3, 11), ("b", at(1), at(11), 1, 4)]
    # A table of each key's latest session has the same one: the tombstone is older than the result.
    assert [(row["k"], row["total"]) for row in tester.latest()] == [("a", 11), ("b", 4)]


def test_windows_over_sessions_close_by_the_punctuation_of_the_sessions():
    def steps(stream: Any) -> Any:
        sessions = stream.session_window("10 minutes", shards=2, emit="all").agg(n=us.count())
        return sessions.window("1 hour", shards=2, emit="all").agg(sessions=us.count(), longest=us.max("n"))

    tester = make_tester(steps)
    assert tester.batch(rows(("a", 0, 1), ("a", 5, 1), ("a", 30, 1), ("a", 55, 1)), punctuation=at(59)) == []
    found = tester.batch(punctuation=at(61))
    assert [(row["window_start"], row["sessions"], row["longest"]) for row in found] == [(at(0), 2, 2)]
    assert [(row["window_start"], row["sessions"]) for row in tester.end()] == [(at(60), 1)]


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        ({"gap": "soon"}, {}, "gap='soon'"),
        ({"gap": "0 s"}, {}, "gap='0 s'"),
        ({"emit": "eager"}, {}, "emit='eager'"),
        ({"emit": us.Emission(flush="lazy")}, {}, "flush='lazy'"),
        ({"shards": 0}, {}, "shards=0"),
        ({"tombstones": "keep"}, {}, "tombstones='keep'"),
        ({}, {"event_time": None, "watermark": None}, "on a stream without"),
        ({}, {"watermark": us.Watermark.none()}, "low-watermark"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(given, more, message):
    with pytest.raises(OptionError, match=message):
        make_tester(lambda stream: stream.session_window(**{"gap": "1 s", **given}).agg(n=us.count()), **more)


@pytest.mark.parametrize("options", [{"emit": us.Emission("all", early=True)}, {"lateness": "1 s"}, {"emit": "latest"}])
def test_windows_over_sessions_that_come_again_or_are_passed_over_are_refused(options):
    def steps(stream: Any) -> Any:
        sessions = stream.session_window("1 s", **{"emit": "all", **options}).agg(n=us.count())
        return sessions.window("1 hour").agg(n=us.count())

    with pytest.raises(SchemaError):
        make_tester(steps)
