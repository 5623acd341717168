"""Rates and costs worked out by hand."""

import numpy as np
import pytest

from upstream.conf.errors import OptionError
from upstream.operators.queue.monitor import StatisticsMonitor

S = 1_000_000


def keys(*numbers):
    return np.array(numbers, dtype=np.int64)


def test_what_makes_no_sense_is_refused():
    for bad in ({"half_life_s": 0.0}, {"cells": 0}, {"cost_s": -0.1}):
        with pytest.raises(OptionError, match="half life"):
            StatisticsMonitor(**bad)
    assert StatisticsMonitor(half_life_s=0.5, cells=1, cost_s=0.0).cost_s == 0.0


def test_the_cost_is_pinned_or_measured():
    monitor = StatisticsMonitor()
    assert monitor.cost_s is None
    monitor.served(0, 5.0)
    monitor.served(5, -0.5)
    assert monitor.cost_s is None
    monitor.served(1, 8.0)
    assert monitor.cost_s == 8.0
    monitor.served(4, 8.0)
    assert monitor.cost_s == 5.0
    monitor.served(1, 0.0)
    assert monitor.cost_s == 2.5
    pinned = StatisticsMonitor(cost_s=3.0)
    pinned.served(1, 8.0)
    assert pinned.cost_s == 3.0


def test_counts_fade_by_half_a_half_life_later():
    monitor = StatisticsMonitor(half_life_s=10.0, cells=8)
    assert monitor.rate_per_s(keys(0, 1)).tolist() == [0.0, 0.0]
    monitor.arrived(keys(1, 1, 10), 5 * S)
    assert monitor.snapshot()["count"][0].tolist() == [0, 2, 1, 0, 0, 0, 0, 0]
    monitor.arrived(keys(1), 15 * S, np.array([3]))
    fast, slow, there = monitor.snapshot()["count"]
    assert fast[:4] == pytest.approx([0, 4, 0.5, 0])
    assert slow[:4] == pytest.approx([0, 2 * 2 ** (-1 / 256) + 3, 2 ** (-1 / 256), 0])
    assert there.tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
    monitor.arrived(keys(3), 10 * S)
    state = monitor.snapshot()
    assert state.pop("count")[0][:4] == pytest.approx([0, 4, 0.5, 1]), "a clock that jumps back fades nothing"
    assert state == {"at_us": 15 * S, "since_us": 5 * S, "cost_s": None}


def test_a_constant_rate_is_measured_right():
    monitor = StatisticsMonitor(half_life_s=10.0, cells=4, most_cells=4)
    monitor.arrived(keys(), 0)
    for second in range(1, 21):
        monitor.arrived(keys(0, 0, 5), second * S)
    # Counts come at the end of each second here, and so are ln2/10 / (1 - 2^(-1/10)) too high.
    assert monitor.rate_per_s(keys(0, 1, 4)) == pytest.approx(np.array([2, 1, 2]) * 1.03506, rel=1e-4)
    once = StatisticsMonitor(half_life_s=10.0, cells=4)
    once.arrived(keys(0), 7 * S)
    assert once.rate_per_s(keys(0)) == pytest.approx([1e6]), "as if it had been seen for a microsecond"


def test_pinned_rates_are_what_is_said():
    monitor = StatisticsMonitor(cost_s=0.1, rate_per_s=np.array([1.0, 4.0, 0.5]))
    monitor.arrived(keys(0, 0), 0)
    assert monitor.snapshot()["at_us"] is None
    assert monitor.rate_per_s(keys(2, 1)).tolist() == [0.5, 4.0]


def test_slow_is_who_can_wait_for_a_round():
    """u c n < 1 - c Σ u_j, both sides in figures that floats hold."""
    monitor = StatisticsMonitor(cost_s=0.125, rate_per_s=np.array([1.0, 2.0, 1.0, 8.0]))
    residents = [5, 6, 7]
    assert [monitor.slow(keys(0), keys(n)).tolist() for n in residents] == [[True], [False], [False]], "0.125 n < 0.75"
    assert [monitor.slow(keys(1), keys(n)).tolist() for n in (1, 2)] == [[True], [False]], "0.25 n < 0.5"
    assert monitor.slow(keys(3, 2), keys(1, 5)).tolist() == [False, True]
    assert monitor.slow(keys(3, 2), keys(1, 5)).tolist() == [False, True], "rates that are pinned are added up once"
    unknown = StatisticsMonitor(rate_per_s=np.array([1.0]))
    assert unknown.slow(keys(0, 0), keys(1, 1)).tolist() == [False, False]


def test_slow_by_measured_rates_follows_them():
    monitor = StatisticsMonitor(half_life_s=10.0, cells=2, most_cells=2, cost_s=0.25)
    monitor.arrived(keys(), 0)
    for second in range(1, 41):
        monitor.arrived(keys(0, 1, 1), second * S)
    assert monitor.slow(keys(0, 1, 2), keys(2, 1, 2)).tolist() == [True, False, True]
    monitor.arrived(np.zeros(500, dtype=np.int64), 41 * S)
    assert monitor.slow(keys(0, 1), keys(1, 2)).tolist() == [False, False], "one has become too fast"
    monitor.arrived(keys(), 400 * S)
    assert monitor.slow(keys(0, 1), keys(2, 2)).tolist() == [True, True]


def test_a_restart_goes_on():
    monitor = StatisticsMonitor(cells=8)
    monitor.arrived(keys(1), 5)
    monitor.arrived(keys(2), 9)
    monitor.served(1, 2.0)
    state = monitor.snapshot()
    monitor.arrived(keys(3), 10)
    assert state["count"][0, 3] == 0, "a snapshot stays as it is"
    again = StatisticsMonitor(cells=4)
    again.restore(state)
    assert again.snapshot()["count"].tolist() == state["count"].tolist()
    assert [again.snapshot()[name] for name in ("at_us", "since_us", "cost_s")] == [9, 5, 2.0]
    again.arrived(keys(0), 9)
    assert state["count"][0, 0] == 0
    other = StatisticsMonitor(cells=8)
    other.restore({**state, "count": state["count"][:, :0][:0]})
    assert other.snapshot()["count"].tolist() == [[0] * 8] * 3
    assert [other.snapshot()[name] for name in ("at_us", "since_us", "cost_s")] == [None, None, 2.0]


def test_the_table_grows_with_the_keys():
    monitor = StatisticsMonitor(cells=4, most_cells=16)
    monitor.arrived(keys(0, 1, 1, 1, 1), 100 * S)
    assert monitor.snapshot()["count"].shape == (3, 4)
    monitor.arrived(keys(2), 100 * S)
    fast, slow, there = monitor.snapshot()["count"]
    assert fast.tolist() == [0.5, 2, 1, 0, 0.5, 2, 0, 0]
    assert slow.tolist() == [0.5, 0, 1, 0, 0.5, 0, 0, 0], "a fast key leaves nothing to slow ones"
    assert there.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    monitor.arrived(np.arange(100), 101 * S)
    assert monitor.snapshot()["count"].shape == (3, 16), "no more than the most"


def test_a_key_that_seldom_updates_cuts_the_line_of_many():
    """140,000 keys update every 30 minutes, and 10,000 each second, at 10 ms a row."""
    rare, often = np.arange(140_000), np.arange(140_000, 150_000)
    monitor = StatisticsMonitor(cost_s=0.01)
    monitor.arrived(keys(), 0)
    for at in range(60, 3 * 3600, 60):
        mine = rare[rare % 30 == at // 60 % 30]
        monitor.arrived(mine, at * S)
        monitor.arrived(often, at * S, np.full(len(often), 60))
    true = 1 / 1800
    found = monitor.rate_per_s(rare)
    assert np.median(found) == pytest.approx(true, rel=0.5)
    assert found.sum() == pytest.approx(true * len(rare), rel=0.6)
    assert monitor.slow(mine, np.full(len(mine), 10_000)).mean() > 0.9, "u c n is 0.06, and all of them take 0.8"
    assert not monitor.slow(often[:100], np.full(100, 10_000)).any()
    monitor.arrived(keys(), (3 * 3600 + 7200) * S)
    assert (monitor.rate_per_s(rare) <= true).all(), "who is silent is not taken for as fast as before"
