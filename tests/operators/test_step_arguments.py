"""What is given to joins, checked."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.event_times import TimeFormat
from upstream.operators.join_steps import of_both
from upstream.operators.step_arguments import check_time_formats, columns_of_on, time_span
from upstream.testing import StreamTester


@pytest.mark.parametrize(
    ("given", "found"),
    [("a", {"a": "a"}), (["a", "b"], {"a": "a", "b": "b"}), ({"a": "x", "b": "y"}, {"a": "x", "b": "y"})],
)
def test_on(given, found):
    assert columns_of_on(given) == found


@pytest.mark.parametrize("given", ["", [], {}, None, {"a": ""}, {"a": 3}, 7, [3]])
def test_on_that_names_no_columns(given):
    with pytest.raises(OptionError, match="on="):
        columns_of_on(given)


STEPS: dict[str, Callable[[Any, str], Any]] = {
    "group_by({})": lambda stream, name: stream.group_by(name),
    "window(by={})": lambda stream, name: stream.window("1 s", by=("k", name)),
    "window(by={}": lambda stream, name: stream.window(us.Windower("9 rows", of="stream"), by=name),
    "session_window(by={})": lambda stream, name: stream.session_window("1 s", by=name),
}


def made(step: Callable[[Any, str], Any], name: str) -> StreamTester:
    schema = "k STRING, at TIMESTAMP, n BIGINT, f DOUBLE, s STRUCT<x: BIGINT>"
    return StreamTester(
        lambda stream: step(stream, name).agg(rows=us.count()),
        schema, key="k", event_time="at", watermark=us.Watermark.bounded("0 s"),
    )  # fmt: skip


@pytest.mark.parametrize("asked", STEPS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("f", "is of type double"),
        ("s", "is of type struct"),
        ("absent", "the stream lacks"),
        ("_upstream", "the stream lacks"),
    ],
)
def test_fractions_and_structs_form_no_groups(asked, name, reason):
    with pytest.raises(SchemaError) as refused:
        made(STEPS[asked], name)
    text = str(refused.value)
    assert asked.format(repr(name)) in text
    assert reason in text
    assert made(STEPS[asked], "n")


GONE = {"_upstream": {"deleted": True}}


def step(kind, **retention):
    """A join on the key, a join on another column, or a group, of one row for each value of `r`."""
    if kind == "group":
        return lambda left: left.group_by("r", shards=2, **retention).agg(v=us.max("v"))
    on = "k" if kind == "own" else {"r": "k"}
    return lambda left, right: left.join_latest(right, on=on, shards=2, **retention).select("v")


def stream_tester(kind, **retention):
    tester = StreamTester(
        step(kind, **retention), "k STRING, t BIGINT, r STRING, v BIGINT", key="k", event_time="t",
        time_format="epoch_us",
    )  # fmt: skip
    if kind != "group":
        tester.batch([{"k": "a", "t": 1, "r": "a", "v": 0}], into="right")
    return tester


@pytest.mark.parametrize("kind", ["own", "moves", "group"])
def test_an_older_row_counts_once_its_deletion_is_forgotten(kind):
    for retention, back in (({"tombstone_retention": 100}, True), ({"tombstone_retention": 101}, False), ({}, False)):
        tester = stream_tester(kind, **retention)
        tester.batch([{"k": "a", "t": 10, "r": "a", "v": 1}])
        assert [row["v"] for row in tester.latest()] == [1]
        tester.batch([{"k": "a", "t": 20, **GONE}])
        tester.restart()
        assert tester.latest() == []
        tester.batch([{"k": "b", "t": 121, "r": None, "v": 0}], punctuation=121)
        tester.batch([{"k": "a", "t": 15, "r": "a", "v": 2}])
        assert [row["v"] for row in tester.latest()] == ([2] if back else [])
        # What came back is newer than what the table was told before, and deleted by a tombstone like any row.
        tester.batch([{"k": "a", "t": 16, "r": "a", "v": 3}])
        assert [row["v"] for row in tester.latest()] == ([3] if back else [])
        tester.batch([{"k": "a", "t": 21, **GONE}])
        assert tester.latest() == []


def test_the_unit_is_that_of_the_time_column():
    found = []

    def steps(rows):
        found.append(time_span("group_by", "ttl", rows.plan, "36 hours"))
        return rows.group_by("r", tombstone_retention="36 hours").agg(n=us.count())

    for kind in ("TIMESTAMP", "DATE"):
        StreamTester(steps, f"k STRING, t {kind}, r STRING", key="k", event_time="t").batch(
            [{"k": "a", "t": dt.date(2020, 1, 1), "r": "x"}] if kind == "DATE" else []
        )
    assert found[0] == 36 * 3600 * 1_000_000
    assert found[-1] == 2
    StreamTester(steps, "k STRING, t BIGINT, r STRING", key="k", event_time="t", time_format="epoch_ms")
    assert found[-1] == 36 * 3600 * 1_000


def test_streams_whose_times_count_other_units_do_not_meet():
    plans = []

    def steps(one, two):
        plans.extend([one.plan, dataclasses.replace(two.plan, given=TimeFormat("epoch_s"))])
        return one

    StreamTester(steps, "k STRING, t BIGINT", key="k", event_time="t", time_format="epoch_ms")
    check_time_formats("join", plans[0], plans[0])
    for other in (plans[1], dataclasses.replace(plans[1], given=TimeFormat())):
        unit = other.time_format.unit
        with pytest.raises(SchemaError, match=f"join of a stream whose time 't' counts epoch_ms .* counts {unit}"):
            check_time_formats("join", plans[0], other)


@pytest.mark.parametrize(
    ("time", "retention", "message"),
    [
        ("t", "-1 day", "tombstone_retention='-1 day'"), ("t", -1, r"holds numbers \(epoch_us\)"),
        ("t", True, "holds numbers"),
        (None, 7, "without an event time"), ("d", 7, "a duration such as"), ("d", "-1 day", "a duration such as"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(time, retention, message):
    with pytest.raises(OptionError, match=message):
        StreamTester(
            lambda rows: rows.group_by("r", tombstone_retention=retention).agg(n=us.count()),
            "k STRING, t BIGINT, d TIMESTAMP, r STRING", key="k", event_time=time,
            **({"time_format": "epoch_us"} if time == "t" else {}),
        )  # fmt: skip


def test_one_time_to_live_is_that_of_both_sides():
    assert of_both("1 hour") == ("1 hour", "1 hour")
    assert of_both(["1 hour", None]) == ("1 hour", None)
    assert of_both(None) == (None, None)
    with pytest.raises(OptionError, match="a pair for the left and the right"):
        of_both(("1 hour",))
