"""Silent feeds: waiting, going on without them, on-demand timestamps; clocks that are wrong."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import ReorderReport, write_report
from upstream.datasource.registry import parse_source_options

from .driven_feeds import BASE, Driver, S


@pytest.mark.parametrize("idle", [{}, {"idle": "advance", "idle_after_us": 10 * S}])
def test_where_all_are_idle_nothing_moves_and_by_default_a_silent_feed_is_waited_for(idle):
    driver = Driver("a", "b", **idle)
    driver.send("a", BASE)
    driver.send("b", BASE - 5 * S)
    assert driver.look() == {"a": BASE, "b": BASE - 5 * S}
    assert driver.look(100) is None
    assert driver.look(10_000) is None
    assert driver.batches == 1
    if not idle:
        driver.send("a", BASE + 1000 * S)
        assert driver.look() == {"a": BASE + 1000 * S}
        assert driver.look(1000) is None


def test_an_idle_feed_follows_the_least_of_the_live_ones_and_returns_by_itself():
    driver = Driver("a", "b", "c", idle="advance", idle_after_us=10 * S)
    for feed, behind in (("a", 0), ("b", 1), ("c", 2)):
        driver.send(feed, BASE - behind * S)
    driver.look()
    driver.send("a", BASE + 9 * S)
    driver.send("c", BASE + 8 * S)
    assert driver.look(9) == {"a": BASE + 9 * S, "c": BASE + 8 * S}, "not idle yet"
    driver.send("a", BASE + 10 * S)
    assert driver.look(1) == {"a": BASE + 10 * S, "b": BASE + 8 * S}
    driver.send("b", BASE + 2 * S, BASE + 8 * S, BASE - 2 * S)
    assert driver.look(0) is not None
    # Of its two late rows one would have been late anyway.
    assert (driver.state("b")["late"], driver.state("b")["late_idle"]) == (2, 1)
    driver.send("a", BASE + 12 * S)
    driver.send("b", BASE + 11 * S)
    assert driver.look(1) == {"a": BASE + 12 * S, "b": BASE + 11 * S}, "it moves by itself again"


def test_a_feed_that_a_limit_keeps_waiting_is_not_idle():
    """Rows that are there and not yet taken are no silence."""
    driver = Driver("a", "b", idle="advance", idle_after_us=10 * S)
    driver.send("b", BASE)
    driver.send("a", BASE)
    driver.look()
    driver.send("a", *[BASE + n * S for n in range(20)])
    driver.send("b", BASE + S)
    for _ in range(4):  # four batches of a's rows, a long time each
        promised = driver.look(11, limit=5)
        assert promised is not None
        assert "b" not in promised
    assert driver.look(11, limit=5) == {"b": BASE + S}
    assert driver.state("b")["late"] == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.integers(0, 15)), min_size=1, max_size=30),
    st.sampled_from(["wait", "advance"]),
)
def test_promises_never_decrease_and_late_rows_are_those_below_them(sent, idle):
    driver = Driver("a", "b", idle=idle, idle_after_us=10 * S)
    promised: dict[str, int] = {}
    late = dict.fromkeys("ab", 0)
    for feed, behind, seconds in sent:
        driver.now += seconds * S
        time = driver.now - behind * S
        late[feed] += time < promised.get(feed, time)
        driver.send(feed, time)
        for each, bound in (driver.look() or {}).items():
            assert bound > promised.get(each, bound - 1)
            promised[each] = bound
    for feed, state in driver.offset["progress"].items():
        assert state["late"] == late[feed]
        assert 0 <= state["late_idle"] <= state["late"]
        assert idle == "advance" or state["late_idle"] == 0
        assert state["bound"] == promised.get(feed)


class OnDemand(Driver):
    """With what a window operator says below the checkpoint."""

    def __init__(self, checkpoint: Any, *feeds: str, **changes: Any) -> None:
        super().__init__(*feeds, idle="ets", checkpoint_location=str(checkpoint), **changes)


def test_what_is_held_is_released_once_the_clock_allows_it_and_then_there_is_silence(tmp_path):
    driver = OnDemand(tmp_path, "a", "b", ets_delay_us=3 * S)
    driver.send("a", BASE)
    driver.send("b", BASE - 5 * S)
    driver.look()
    driver.holds(BASE + 10 * S)
    # a: BASE + τ - 3 s; b, whose clock is 5 s behind: BASE - 5 s + τ - 3 s.
    assert [driver.look(1) for _ in range(17)] == [None] * 17
    assert driver.look(1) == {"a": BASE + 10 * S, "b": BASE + 10 * S}
    # The same again is not promised twice, whether or not the operator has said that it was released.
    assert [driver.look(1) for _ in range(30)] == [None] * 30
    driver.holds(None)
    assert [driver.look(1) for _ in range(30)] == [None] * 30
    assert driver.batches == 2


def test_only_the_feed_that_blocks_is_promised_for(tmp_path):
    driver = OnDemand(tmp_path, "busy", "silent", ets_delay_us=0)
    driver.send("busy", BASE)
    driver.send("silent", BASE)
    driver.look()
    driver.holds(BASE + 5 * S)
    driver.send("busy", BASE + 8 * S)
    promised = driver.look(8)
    assert promised == {"busy": BASE + 8 * S, "silent": BASE + 8 * S}
    assert driver.state("silent")["own"] == BASE
    driver.send("silent", BASE + 4 * S, BASE + 9 * S)
    driver.look(1)
    assert (driver.state("silent")["late"], driver.state("silent")["late_idle"]) == (1, 1)


def test_internal_time_is_the_clock_which_stands_still_where_it_was_set_back(tmp_path):
    driver = OnDemand(tmp_path, "a", "b", progress="arrival")
    driver.send("a", 0)
    assert driver.look() == {"a": BASE, "b": BASE}
    driver.send("a", 0)
    assert driver.look(-3600) == {}
    assert driver.offset["now_us"] == BASE
    driver.holds(BASE + 10 * S)
    assert driver.look(3600) is None
    assert driver.look(9) is None
    assert driver.look(2) == {"a": BASE + 11 * S, "b": BASE + 11 * S}
    driver.holds(None)
    assert driver.look(1000) is None


@pytest.mark.parametrize("waits", ["windows", "rows for their turn"])
def test_deeper_operators_are_asked_too(tmp_path, waits):
    driver = OnDemand(tmp_path, "a", ets_delay_us=0)
    driver.send("a", BASE)
    driver.look()
    if waits == "windows":
        driver.holds(None)
        driver.holds(BASE + 5 * S, operator=1)
    else:
        counts: Any = {field.name: 0 for field in dataclasses.fields(ReorderReport) if field.type == "int"}
        waiting = ReorderReport(**{**counts, "bounds": {}, "promised": None, "needs": BASE + 5 * S})
        write_report(operator_folder(str(tmp_path), "reorder"), waiting)
    assert [driver.look(1) for _ in range(4)] == [None] * 4
    assert driver.look(2) == {"a": BASE + 6 * S}


def test_what_is_read_up_to_now_waits_for_no_clock(tmp_path):
    """With Trigger.AvailableNow a run would never end."""
    driver = OnDemand(tmp_path, "a", ets_delay_us=0)
    driver.send("a", BASE)
    driver.look()
    driver.holds(BASE + 5 * S)
    assert driver.look(100, frozen=True) is None
    assert driver.look(0) is not None


def test_the_delay_is_learned_from_what_has_been_measured(tmp_path):
    """Rows come 2 to 5 s after their times, so that one from now on lies at most 3 s behind what the clock says."""
    driver = OnDemand(tmp_path, "a", progress_delay_us=100 * S)
    driver.send("a", BASE)
    driver.look()
    driver.holds(BASE + S)
    # Until there is enough to learn from it is wide.
    assert driver.look(100) is None
    assert driver.look(1) == {"a": BASE + S}
    driver = OnDemand(tmp_path / "again", "a", progress_delay_us=100 * S)
    for n in range(8):
        driver.now += S
        driver.send("a", driver.now - (2 if n % 2 else 5) * S)
        driver.look()
    assert driver.state("a")["skew"]["smallest"] == 2 * S
    assert driver.state("a")["skew"]["largest"] == 5 * S
    largest = driver.state("a")["confirmed"]
    assert largest == driver.now - 2 * S
    driver.holds(largest + S)
    assert driver.look(3.5) is None
    assert driver.look(0.5) == {"a": largest + S}


def test_a_feed_hours_ahead_delays_nobody_and_loses_nothing():
    driver = Driver("ahead", "true")
    for _ in range(20):
        driver.now += S
        driver.send("ahead", driver.now + 5 * 3600 * S)
        driver.send("true", driver.now - S)
        assert driver.look() == {"ahead": driver.now + 5 * 3600 * S, "true": driver.now - S}
    assert driver.state("ahead")["skew"]["latest"] == -5 * 3600 * S
    assert driver.state("true")["skew"]["latest"] == S
    assert [driver.state(feed)["late"] + driver.state(feed)["suspects"] for feed in ("ahead", "true")] == [0, 0]
    assert [driver.state(feed)["received"] for feed in ("ahead", "true")] == [20, 20]


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"idle": "advance"}, "no step waits"),
        ({"idle": "advance", "eventTime": "t", "watermark": "none"}, "no step waits"),
        ({"idle": "advance", "eventTime": "t", "punctuation": "off"}, "no step waits"),
        ({"eventTime": "t", "watermark": "adaptive", "targetLate": "2"}, "above 0"),
        ({"eventTime": "t", "idle": "wiat"}, "'wait'"),
        ({"coalesce": "true"}, "without `key`"),
    ],
)
def test_contradictions_are_refused(given_options, message):
    with pytest.raises(OptionError, match=message):
        parse_source_options({"path": "x", **given_options})


def test_shares_are_read_in_percent_too():
    common, _ = parse_source_options({"path": "x", "eventTime": "t", "watermark": "adaptive", "targetLate": "0.1 %"})
    assert common.target_late == pytest.approx(0.001)
