"""Windows by other columns than the update key, in a tester."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def at(minute: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone.utc) + dt.timedelta(minutes=minute)


def row(bus: str, minute: float, route: str | None, speed: float = 1.0) -> dict[str, Any]:
    return {"bus": bus, "at": at(minute), "route": route, "speed": speed}


def made(by: Any, duration: str = "5 minutes", **options: Any) -> StreamTester:
    def steps(stream: Any) -> Any:
        windows = stream.window(duration, by=by, output="all", **options)
        return windows.agg(n=us.count(), speed=us.avg("speed"))

    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    schema = "bus STRING, at TIMESTAMP, route STRING, speed DOUBLE"
    return StreamTester(steps, schema, key="bus", event_time="at", watermark=watermark)


ROWS = [row("a", 1, "10", 2.0), row("b", 2, "10", 4.0), row("a", 3, "11", 6.0), row("a", 4, "10", 6.0)]


def test_finer_groups_than_the_key() -> None:
    t = made(("bus", "route"))
    t.batch(ROWS)
    t.restart()
    t.batch(punctuation=at(5))
    assert [(each["bus"], each["route"], each["n"], each["speed"]) for each in t.latest()] == [
        ("a", "10", 2, 4.0), ("a", "11", 1, 6.0), ("b", "10", 1, 4.0),
    ]  # fmt: skip


def test_groups_across_keys_and_windows_over_them() -> None:
    t = made("route")
    t.batch(ROWS)
    found = t.batch(punctuation=at(5))
    assert sorted((each["route"], each["n"], each["speed"]) for each in found) == [("10", 3, 4.0), ("11", 1, 6.0)]
    assert "bus" not in found[0]

    def steps(stream: Any) -> Any:
        routes = stream.window("5 minutes", by=("bus", "route"), output="all").agg(n=us.count())
        return routes.window("10 minutes", by="route", output="all").agg(rows=us.sum("n"), buses=us.count())

    watermark = us.Watermark.bounded("0 s").guarded(confirmations=1)
    two = StreamTester(steps, "bus STRING, at TIMESTAMP, route STRING", key="bus", event_time="at", watermark=watermark)
    two.batch([{name: each[name] for name in ("bus", "at", "route")} for each in ROWS])
    assert sorted((each["route"], each["rows"], each["buses"]) for each in two.end()) == [("10", 3, 2), ("11", 1, 1)]


def test_the_last_rows_of_a_group() -> None:
    t = made("route", "2 rows")
    assert [(each["route"], each["speed"]) for each in t.batch(ROWS)] == [("10", 3.0)]
    assert [(each["route"], each["speed"]) for each in t.batch([row("c", 0, "10", 8.0)])] == [("10", 7.0)]


def test_a_tombstone_needs_no_group() -> None:
    t = made("route", tombstones="drop")
    t.batch([*ROWS, {**row("a", 4.5, None), "_upstream": {"deleted": True}}])
    assert sorted((each["route"], each["n"]) for each in t.end()) == [("10", 3), ("11", 1)]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SchemaError, match="1 rows have no route, and it is part of the window's group"):
        made("route").batch([row("a", 1, None)])
    with pytest.raises(SchemaError, match=r"window\(by='line'\), which the stream has not.*bus, at, route, speed"):
        made(("bus", "line"))
    with pytest.raises(SchemaError, match=r"window\(by='_upstream'\), which the stream has not"):
        made("_upstream")
    with pytest.raises(OptionError, match="by=5"):
        made(5)
    with pytest.raises(SchemaError, match="an aggregate is named route"):
        StreamTester(
            lambda stream: stream.window("1 minute", by="route").agg(route=us.count()),
            "bus STRING, at TIMESTAMP, route STRING", key="bus", event_time="at",
        )  # fmt: skip


def test_the_group_is_for_the_life_of_a_checkpoint() -> None:
    t = made("route")
    t.batch(ROWS)
    with pytest.raises(us.errors.CheckpointError, match="route"):
        t.restart(lambda stream: stream.window("5 minutes", output="all").agg(n=us.count(), speed=us.avg("speed")))
