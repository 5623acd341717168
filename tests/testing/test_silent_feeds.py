"""Feeds that fall silent in a tester: its clock promises for them what an operator waits for."""

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import OptionError
from upstream.testing import StreamTester

SCHEMA = "k STRING, at TIMESTAMP, v INT"
ORDERED = us.Watermark.ordered().guarded(confirmations=1)
NEAR = us.Interval(before="1 hour", after="1 hour")


def at(second: float) -> datetime:
    return datetime(2024, 1, 1, 12, tzinfo=timezone.utc) + timedelta(seconds=second)


def row(second: float, value: int, key: str = "k") -> dict[str, Any]:
    return {"k": key, "at": at(second), "v": value}


def in_order(busy: Any, silent: Any) -> Any:
    return busy.join(silent, on="k", within=NEAR, shards=2, emit="ordered")


def made(steps: Any, watermark: us.Watermark = ORDERED, **more: Any) -> StreamTester:
    return StreamTester(steps, SCHEMA, key="k", event_time="at", watermark=watermark, **more)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_join_goes_on_without_its_silent_side_when_the_clock_has_come_so_far(restarts):
    t = made(in_order, idle="ets", ets_delay="2 seconds")
    t.batch([row(0, 1)], into="silent", at=at(0))
    left = t.batch([row(0, 2), row(4, 3)], into="busy", at=at(1))
    assert [each["v"] for each in left] == [2]
    if restarts:
        t.restart()
    # The silent side's time is its last row's, plus the time since, less the delay.
    assert t.batch(at=at(5.999999)) == []
    assert [(each["v"], each["v_right"]) for each in t.batch(at=at(6))] == [(3, 1)]
    assert t.batch(at=at(60)) == []
    assert t.watermark == at(4), "and nothing was promised that nobody waits for"


def test_what_makes_no_sense_is_refused():
    with pytest.raises(OptionError, match="idle='advance'"):
        made(in_order, idle="advance")
    with pytest.raises(OptionError, match=r"ets_delay='1 second' with idle='wait'"):
        made(in_order, ets_delay="1 second")


DELAY_S = 2
Arrivals = list[tuple[int, int, str, int]]


@st.composite
def arrivals(draw: Any) -> Arrivals:
    """Rows of two feeds (clock, time, feed, number), each there at most the delay after its time."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        time = draw(st.integers(0, 30))
        found.append((time + draw(st.integers(0, DELAY_S)), time, draw(st.sampled_from("ab")), number))
    return sorted(found)


@given(arrivals(), st.sampled_from(["window", "ordered"]), st.sets(st.integers(0, 12), max_size=3))
def test_all_comes_out_by_the_clock_and_nothing_is_late(rows, step, restarts):
    def steps(stream: Any) -> Any:
        if step == "ordered":
            return stream.ordered(shards=1)
        return stream.window("5 seconds", shards=2, emit="all").agg(n=us.count())

    t = made(steps, us.Watermark.bounded("3 seconds").guarded(confirmations=1), idle="ets", ets_delay=f"{DELAY_S} s")
    found: list[dict[str, Any]] = []
    for number, (clock, time, feed, value) in enumerate(rows):
        found += t.batch([row(time, value)], feed=feed, at=at(clock))
        if number in restarts:
            t.restart()
    for clock in range(30, 60):
        found += t.batch(at=at(clock))
    assert t.late == []
    if step == "ordered":
        assert [(each["at"], each["v"]) for each in found] == [(at(time), value) for _, time, _, value in by_time(rows)]
    else:
        ends = Counter(time // 5 * 5 + 5 for _, time, _, _ in rows)
        assert {each["window_end"]: each["n"] for each in found} == {at(end): n for end, n in ends.items()}
        assert len(found) == len(ends)
    # Nothing waits any more, so nothing more is promised.
    before = t.watermark
    assert t.batch(at=at(3600)) == []
    assert t.watermark == before


def by_time(rows: Arrivals) -> Arrivals:
    return sorted(rows, key=lambda each: (each[1], rows.index(each)))
