"""Windows of rows, by other columns than the update key, and of results that leave later, in a tester."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError, SchemaError
from upstream.testing import StreamTester

Steps = Callable[[Any], Any]


def at(minute: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)


def row(bus: str, minute: float, route: str | None = "10", speed: float = 1.0) -> dict[str, Any]:
    return {"bus": bus, "at": at(minute), "route": route, "speed": speed}


def made(steps: Steps, **more: Any) -> StreamTester:
    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    schema = "bus STRING, at TIMESTAMP, route STRING, speed DOUBLE"
    return StreamTester(steps, schema, key="bus", **{"event_time": "at", "watermark": watermark, **more})


def window(*given: Any, **options: Any) -> Steps:
    options = {"emit": "all", **options}
    return lambda stream: stream.window(*given, **options).agg(n=us.count(), speed=us.sum("speed"))


def of_stream(*given: str, of: Any = "stream", method: Any = "auto", **options: Any) -> Steps:
    steps = window(us.Windower(*given, of=of, method=method), **options)
    return lambda stream: steps(stream.where("speed > 0"))


def in_batches(t: StreamTester, rows: list[dict[str, Any]], sizes: list[int]) -> list[dict[str, Any]]:
    """What comes of rows in batches of these sizes, with a restart after each."""
    rows, found = list(rows), list[dict[str, Any]]()
    for size in sizes:
        found += t.batch([rows.pop(0) for _ in range(size)])
        t.restart()
    return found


ROWS = [
    row("a", 5, speed=1.0), row("b", 1, speed=0.0), row("b", 2, speed=2.0),  # one does not come to the window
    row("a", 3, "11", 4.0), row("c", 4, "11", 8.0), row("a", 1, "10", 16.0),
]  # fmt: skip


@pytest.mark.parametrize("sizes", [[6], [1, 1, 1, 1, 1, 1], [5, 0, 1]])
def test_the_last_rows_of_all_keys_whatever_the_batches(sizes):
    t = made(of_stream("3 rows", "2 rows"))
    found = in_batches(t, ROWS, sizes)
    got = sorted((each["window_start"], each["window_end"], each["bus"], each["n"], each["speed"]) for each in found)
    assert got == [
        (-1, 2, "a", 1, 1.0), (-1, 2, "b", 1, 2.0),
        (1, 4, "a", 1, 4.0), (1, 4, "b", 1, 2.0), (1, 4, "c", 1, 8.0),
    ]  # fmt: skip
    assert t.end() == [], "a window that lacks rows stays open, as do windows over the rows of a key"
    assert t.late == []


def test_groups_within_the_last_rows_and_the_rows_so_far_need_no_time():
    t = made(of_stream("5 rows", by="route"), event_time=None, watermark=None)
    assert sorted((each["route"], each["n"], each["speed"]) for each in t.batch(ROWS)) == [
        ("10", 3, 19.0), ("11", 2, 12.0),
    ]  # fmt: skip
    for of, ends in (("stream", {2, 4}), ("key", {2})):
        t = made(of_stream("all", "2 rows", of=of), event_time=None, watermark=None)
        assert {each["window_end"] for each in t.batch(ROWS)} == ends


def test_windows_over_results_are_windows_of_their_rows():
    def steps(stream: Any) -> Any:
        inner = stream.window("1 minute", shards=1, emit="all").agg(n=us.count())
        return inner.window(us.Windower("3 rows", of="stream"), shards=2, emit="all").agg(windows=us.count())

    t = made(steps)
    assert t.batch([row("a", 0.5), row("b", 0.8), row("b", 1.2)]) == [], "two windows have closed"
    assert sorted((each["bus"], each["windows"]) for each in t.batch(punctuation=at(2))) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("sizes", [[5], [1, 1, 1, 1, 1]])
def test_every_second_row_that_arrives_ends_a_window(sizes):
    watermark = us.Watermark.bounded("10 minutes").guarded(confirmations=1)
    t = made(window(us.Windower("5 minutes", "2 rows", order="arrival")), watermark=watermark)
    rows = [row("a", 6, speed=1.0), row("a", 3, speed=2.0), row("b", 4), row("a", 1, speed=4.0), row("a", 8, speed=8.0)]
    found = in_batches(t, rows, sizes) + t.batch(punctuation=at(8))
    assert [(each["bus"], each["window_end"], each["n"], each["speed"]) for each in found] == [("a", at(3), 2, 6.0)]
    assert [(each["bus"], each["window_start"], each["window_end"], each["speed"]) for each in t.end()] == [
        ("a", at(3), at(8), 9.0)
    ]


LATE = us.Lateness(dead_letters=True)
EARLY = us.Emission("all", early=True)
LAZY = us.Emission("all", flush="lazy")
SLOW = us.Emission("all", flush="slow", flush_rows=5)
BY_ARRIVAL = us.Windower("5 minutes", "2 rows", order="arrival")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (of_stream("9 rows", lateness="1 s"), "over rows with a method"),
        (of_stream("9 rows", emit="eager"), "over rows with a method"),
        (of_stream("9 rows", lateness=LATE), "dead_letters=True"),
        (of_stream("9 rows", emit=LAZY), "flush='lazy'"),
        (window("9 rows", emit=SLOW, shards=1), "flush='slow'"),
        (of_stream("all", "9 rows", method="wid"), "method='wid' on landmark"),
        (of_stream("5 minutes"), "of='stream' with windows by time"),
        (window(BY_ARRIVAL, emit=EARLY), "early=True.*slide by 2 rows"),
        (window(BY_ARRIVAL, emit="eager"), "emit='eager' on landmark"),
        (window(BY_ARRIVAL, emit=LAZY), "flush='lazy'"),
        (window(BY_ARRIVAL, lateness="1 s"), "a lateness on landmark"),
        (window(us.Windower("5 minutes", "2 rows", order="arrival", method="wid")), "method='wid' on landmark"),
        (window("5 minutes", "3 rows", emit=EARLY), "early=True.*slide by 3 rows"),
    ],
)
def test_options_that_windows_of_rows_do_not_take(steps, message):
    with pytest.raises(OptionError, match=message):
        made(steps)


def revised(stream: Any) -> Any:
    return window("1 minute", emit=us.Emission("all", early=True))(stream)


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (lambda stream: stream.queue(policy="fifo"), SchemaError, "leaves rows out"),
        (lambda stream: stream.where("speed > 0", on_leave="delete"), SchemaError, "tombstone"),
        (lambda stream: revised(stream).where("n > 1"), SchemaError, "several times"),
        (window(us.Windower("2 rows", of="stream"), emit=us.Emission("all", early=True)), SchemaError, "several times"),
        (revised, OptionError, "re-emitted"),
    ],
)
def test_rows_that_are_missing_or_retracted_are_refused(steps, error, message):
    with pytest.raises(error, match=message):
        made(lambda stream: steps(stream).window(us.Windower("9 rows", of="stream"), emit="all").agg(rows=us.count()))


def test_a_window_by_time_over_windows_of_rows_would_never_close():
    def steps(stream: Any) -> Any:
        return window(us.Windower("3 rows", of="stream"))(stream).window("1 minute").agg(n=us.count())

    with pytest.raises(OptionError, match="their times are row numbers"):
        made(steps)


@pytest.mark.parametrize("change", [{"of": "key"}, {"by": "route"}, {"shards": 3}])
def test_another_window_does_not_resume(change):
    t = made(of_stream("3 rows"))
    t.batch(ROWS)
    t.restart(of_stream("3 rows"))
    with pytest.raises(CheckpointError):
        t.restart(of_stream("3 rows", **change))


OF_ROUTES = [row("a", 1, "10", 2.0), row("b", 2, "10", 4.0), row("a", 3, "11", 6.0), row("a", 4, "10", 6.0)]


def test_groups_across_keys_and_windows_over_them():
    t = made(window("5 minutes", by="route"))
    t.batch(OF_ROUTES)
    found = t.batch(punctuation=at(5))
    assert sorted((each["route"], each["n"], each["speed"]) for each in found) == [("10", 3, 12.0), ("11", 1, 6.0)]
    assert "bus" not in found[0]

    def steps(stream: Any) -> Any:
        routes = window("5 minutes", by=("bus", "route"))(stream)
        return routes.window("10 minutes", by="route", emit="all").agg(rows=us.sum("n"), buses=us.count())

    two = made(steps)
    two.batch(OF_ROUTES)
    assert sorted((each["route"], each["rows"], each["buses"]) for each in two.end()) == [("10", 3, 2), ("11", 1, 1)]


def test_a_tombstone_needs_no_group_and_a_row_does():
    t = made(window("5 minutes", by="route", tombstones="drop"))
    t.batch([*OF_ROUTES, {**row("a", 4.5, None), "_upstream": {"deleted": True}}])
    assert sorted((each["route"], each["n"]) for each in t.end()) == [("10", 3), ("11", 1)]
    with pytest.raises(SchemaError, match="1 rows have no route"):
        t.batch([row("a", 11, None)])


def test_a_group_that_makes_no_sense_is_refused():
    with pytest.raises(OptionError, match="by=5"):
        made(window("5 minutes", by=5))
    with pytest.raises(SchemaError, match="an aggregate is named route"):
        made(lambda stream: stream.window("1 minute", by="route").agg(route=us.count()))


def test_the_group_is_for_the_life_of_a_checkpoint():
    t = made(window("5 minutes", by="route"))
    t.batch(OF_ROUTES)
    with pytest.raises(CheckpointError, match="route"):
        t.restart(window("5 minutes"))


def keys(rows: list[dict[str, Any]]) -> list[str]:
    return [each["bus"] for each in rows]


def test_slow_flush_needs_no_rows_and_ends():
    t = made(window("5 minutes", shards=1, emit=us.Emission("all", flush="slow", flush_rows=2)))
    t.batch([row(key, 1) for key in "abcde"])
    assert keys(t.batch(punctuation=at(5))) == ["a", "b"]
    t.restart()
    assert keys(t.batch()) == ["c", "d"]
    assert keys(t.batch()) == ["e"]
    t.batch([row("a", 6), row("b", 6), row("c", 6)])
    assert sorted(keys(t.end())) == ["a", "b", "c"]


def test_lazy_flush_waits_for_the_keys_next_row_or_later_windows():
    t = made(window("5 minutes", shards=1, emit=us.Emission("all", flush="lazy", flush_windows=2)))
    t.batch([row(key, 1) for key in "abc"])
    assert t.batch(punctuation=at(5)) == []
    assert keys(t.batch([row("b", 6)])) == ["b"]
    t.restart()
    assert t.batch(punctuation=at(14.9)) == []
    assert sorted(keys(t.batch(punctuation=at(15)))) == ["a", "c"]


def test_a_window_over_windows_waits_for_results_that_have_not_left():
    """Punctuation follows the results: else the outer window would close without some of them."""

    def steps(stream: Any) -> Any:
        inner = window("1 minute", shards=1, emit=us.Emission("all", flush="slow", flush_rows=1))(stream)
        return inner.window("5 minutes", shards=1, emit="all").agg(total=us.sum("n"))

    t = made(steps)
    t.batch([row("a", minute) for minute in (0.1, 1.1, 2.1, 3.1, 4.1)])  # the first result leaves
    found = t.batch(punctuation=at(5))
    for _ in range(3):
        assert found == []
        found = t.batch()
    assert [(each["bus"], each["total"]) for each in found] == [("a", 5)]
    assert t.late == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flush": "never"}, "flush='never'"),
        ({"flush": "slow"}, "flush_rows=None"),
        ({"flush": "lazy", "flush_rows": 5}, "flush_rows=5"),
        ({"flush": "slow", "flush_rows": 3}, "flush_rows=3 for 4 shards"),
        ({"flush_windows": 2}, "flush_windows=2 with flush='eager'"),
        ({"flush": "lazy", "flush_windows": 0}, "flush_windows=0"),
    ],
)
def test_a_flush_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        made(lambda stream: stream.window("5 minutes", emit=us.Emission(**options), shards=4).agg(n=us.count()))


@pytest.mark.parametrize(("output", "finals"), [("latest", [False, True]), ("all", [True, True])])
def test_with_latest_a_table_by_window_keeps_the_early_result_of_a_window_that_was_passed_over(output, finals):
    """As docs/windows.md says: the key's own table has the latest window alone, and `all` gives every final result."""
    t = made(window("10 minutes", emit=us.Emission(output, early=True)), watermark=us.Watermark.embedded())
    for minute in (5, 15):
        t.batch([row("a", minute)])
    t.batch(punctuation=at(30))
    assert [each["final"] for each in t.latest(key=("bus", "window_id"))] == finals
    (latest,) = t.latest()
    assert (latest["window_end"], latest["final"]) == (at(20), True)
