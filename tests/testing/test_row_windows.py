"""Windows over the rows of the whole stream, and windows that every n-th arriving row ends, in a tester."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def at(minute: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)


def row(bus: str, minute: float, route: str = "10", speed: float = 1.0) -> dict[str, Any]:
    return {"bus": bus, "at": at(minute), "route": route, "speed": speed}


def made(steps: Callable[[Any], Any], **more: Any) -> StreamTester:
    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    schema = "bus STRING, at TIMESTAMP, route STRING, speed DOUBLE"
    return StreamTester(steps, schema, key="bus", **{"event_time": "at", "watermark": watermark, **more})


def of_stream(*window: Any, by: Any = None, **options: Any) -> Callable[[Any], Any]:
    def steps(stream: Any) -> Any:
        given = {"of": "stream", "output": "all", **options}
        return stream.where("speed > 0").window(*window, by=by, **given).agg(n=us.count(), speed=us.sum("speed"))

    return steps


ROWS = [
    row("a", 5, speed=1.0), row("b", 1, speed=0.0), row("b", 2, speed=2.0),  # one does not come to the window
    row("a", 3, "11", 4.0), row("c", 4, "11", 8.0), row("a", 1, "10", 16.0),
]  # fmt: skip


@pytest.mark.parametrize("sizes", [[6], [1, 1, 1, 1, 1, 1], [2, 4], [5, 0, 1]])
def test_the_last_rows_of_all_keys_whatever_the_batches(sizes: list[int]) -> None:
    t, rows = made(of_stream("3 rows", "2 rows")), list(ROWS)
    found: list[dict[str, Any]] = []
    for size in sizes:
        found += t.batch([rows.pop(0) for _ in range(size)])
        t.restart()
    got = sorted((each["window_start"], each["window_end"], each["bus"], each["n"], each["speed"]) for each in found)
    assert got == [
        (-1, 2, "a", 1, 1.0), (-1, 2, "b", 1, 2.0),
        (1, 4, "a", 1, 4.0), (1, 4, "b", 1, 2.0), (1, 4, "c", 1, 8.0),
    ]  # fmt: skip
    assert t.end() == [], "a window that lacks rows stays open, as do windows over the rows of a key"
    assert t.late == []


def test_groups_within_the_last_rows_need_no_time() -> None:
    t = made(of_stream("5 rows", by="route"), event_time=None, watermark=None)
    assert sorted((each["route"], each["n"], each["speed"]) for each in t.batch(ROWS)) == [
        ("10", 3, 19.0), ("11", 2, 12.0),
    ]  # fmt: skip


def test_the_rows_so_far_need_no_time_either() -> None:
    for of, ends in (("stream", {2, 4}), ("key", {2})):
        t = made(of_stream("all", "2 rows", of=of), event_time=None, watermark=None)
        assert {each["window_end"] for each in t.batch(ROWS)} == ends


def test_results_of_a_window_may_leave_in_several_batches() -> None:
    t = made(of_stream("5 rows", flush="slow", flush_rows=2, shards=1))
    assert len(t.batch([row(key, 1) for key in "abcde"])) == 2
    t.restart()
    assert [len(t.batch()) for _ in range(3)] == [2, 1, 0]


def test_the_newest_window_of_each_key_is_in_the_table() -> None:
    t = made(of_stream("2 rows", output="latest", early=True))
    t.batch(ROWS)
    assert [(each["bus"], each["window_id"], each["final"], each["n"]) for each in t.latest()] == [
        ("a", 2, False, 1), ("b", 0, True, 1), ("c", 1, True, 1),
    ]  # fmt: skip


def test_windows_over_results_are_windows_of_their_rows() -> None:
    def steps(stream: Any) -> Any:
        inner = stream.window("1 minute", output="all", shards=1).agg(n=us.count())
        return inner.window("3 rows", of="stream", output="all", shards=2).agg(windows=us.count())

    t = made(steps)
    assert t.batch([row("a", 0.5), row("b", 0.8), row("b", 1.2)]) == [], "two windows have closed"
    assert sorted((each["bus"], each["windows"]) for each in t.batch(punctuation=at(2))) == [("a", 1), ("b", 2)]


def by_arrival(stream: Any) -> Any:
    return stream.window("5 minutes", "2 rows", order="arrival", output="all").agg(n=us.count(), speed=us.sum("speed"))


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1, 1, 1], [2, 3]])
def test_every_second_row_that_arrives_ends_a_window(sizes: list[int]) -> None:
    t = made(by_arrival, watermark=us.Watermark.bounded("10 minutes").guarded(confirmations=1))
    rows = [row("a", 6, speed=1.0), row("a", 3, speed=2.0), row("b", 4), row("a", 1, speed=4.0), row("a", 8, speed=8.0)]
    found: list[dict[str, Any]] = []
    for size in sizes:
        found += t.batch([rows.pop(0) for _ in range(size)])
        t.restart()
    found += t.batch(punctuation=at(8))
    assert [(each["bus"], each["window_end"], each["n"], each["speed"]) for each in found] == [("a", at(3), 2, 6.0)]
    found = t.end()
    assert [(each["bus"], each["window_start"], each["window_end"], each["speed"]) for each in found] == [
        ("a", at(3), at(8), 9.0)
    ]


def test_a_late_row_is_counted_and_ends_no_window() -> None:
    t = made(by_arrival)
    t.batch([row("a", 6)], punctuation=at(6.5))
    t.batch([row("a", 3), row("a", 7), row("a", 7.5, speed=2.0)])
    assert [each["at"] for each in t.late] == [at(3)]
    assert [(each["window_end"], each["n"], each["speed"]) for each in t.end()] == [(at(7.5), 4, 5.0)]


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        (["9 rows"], {"allowed_lateness": "1 s"}, "windows over rows with a method, output='eager' or an allowed"),
        (["9 rows"], {"output": "eager"}, "windows over rows with a method, output='eager' or an allowed"),
        (["9 rows"], {"late_location": "late"}, "late_location='late' with windows over the rows of the whole stream"),
        (["9 rows"], {"flush": "lazy"}, "flush='lazy' with windows over the rows of the whole stream"),
        (["all", "9 rows"], {"method": "wid"}, "method='wid' on landmark windows"),
        (["9 rows"], {"order": "time"}, "order='time' with windows of rows"),
        (["5 minutes"], {}, "of='stream' with windows by time"),
        (["5 minutes", "2 rows"], {}, "of='stream' with windows by time"),
        (["9 rows"], {"of": "streams"}, "of='streams'"),
        (["5 minutes", "2 rows"], {"of": "key", "order": "arrival", "early": True}, "early=True.*slide by 2 rows"),
        (["5 minutes", "2 rows"], {"of": "key", "order": "arrival", "output": "eager"}, "output='eager' on landmark"),
        (["5 minutes", "2 rows"], {"of": "key", "order": "arrival", "flush": "lazy"}, "flush='lazy' with windows that"),
        (["5 minutes", "2 rows"], {"of": "key", "order": "arrival", "allowed_lateness": "1 s"}, "allowed_lateness on"),
        (["5 minutes", "2 rows"], {"of": "key", "order": "arrival", "method": "wid"}, "method='wid' on landmark"),
    ],
)
def test_what_makes_no_sense_is_refused(window: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        made(of_stream(*window, **options))


def revised(stream: Any) -> Any:
    return stream.window("1 minute", output="all", early=True).agg(n=us.count())


def numbered_early(stream: Any) -> Any:
    return stream.window("2 rows", of="stream", output="all", early=True).agg(n=us.count())


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (lambda stream: stream.queue(policy="fifo"), SchemaError, "leaves rows out"),
        (lambda stream: stream.where("speed > 0", on_leave="delete"), SchemaError, "tombstone"),
        (lambda stream: revised(stream).where("n > 1"), SchemaError, "gives a window several times"),
        (numbered_early, SchemaError, "gives a window several times"),
        (revised, OptionError, "of='stream' of a window over windows that are given again"),
    ],
)
def test_rows_that_are_missing_or_taken_back_are_refused(steps: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(lambda stream: steps(stream).window("9 rows", of="stream", output="all").agg(rows=us.count()))


def test_a_window_by_time_over_windows_of_rows_would_never_close() -> None:
    def steps(stream: Any) -> Any:
        inner = stream.window("3 rows", of="stream", output="all").agg(n=us.count())
        return inner.window("1 minute", time_format="epoch_us").agg(n=us.count())

    with pytest.raises(OptionError, match="windows of rows close with their last row, and their times are row numbers"):
        made(steps)


@pytest.mark.parametrize("change", [{"of": "key"}, {"by": "route"}, {"shards": 3}])
def test_another_window_does_not_resume(change: dict[str, Any]) -> None:
    from upstream.conf.errors import CheckpointError

    t = made(of_stream("3 rows"))
    t.batch(ROWS)
    t.restart(of_stream("3 rows"))
    with pytest.raises(CheckpointError):
        t.restart(of_stream("3 rows", **change))
