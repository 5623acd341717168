import dataclasses
import json

import pytest

from upstream.conf.errors import OptionError
from upstream.core.feedback.reports import JoinReport, write_report
from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.joins.release.choice import (
    MeasuredCost,
    OrderedRelease,
    ReleasePlan,
    ReleasePlanner,
    bounds_inside,
    choose,
    enters_up_to,
    load_of,
    release_plan,
)


def test_results_are_held_from_the_load_alpha_on():
    # §7.2.1: at c = 0.5 ms, c·w·λ₁·λ₂ = 0.0005 · 60 · 10 · 1 = 0.3, and the choice changes.
    assert load_of(0.0005, 60, [(1, 10)]) == pytest.approx(0.3)
    assert choose(0.3, 0.3) == "filter"
    assert choose(0.2999, 0.3) == "sync"
    assert choose(0.0, 0.0) == "filter"


def test_the_loads_of_shards_add_up():
    assert load_of(0.001, 10, [(1, 2), (3, 4)]) == pytest.approx(0.001 * 10 * (2 + 12))
    assert load_of(0.001, 10, []) == 0


def test_rows_enter_at_the_least_bound_or_at_once():
    assert enters_up_to("sync", [5, 3]) == 3
    assert enters_up_to("filter", [5, 3]) == HIGHEST
    assert bounds_inside("sync", [5, 3]) == [3, 3]
    assert bounds_inside("filter", [5, 3]) == [5, 3]


def test_results_are_held_unless_another_method_is_chosen():
    assert release_plan(OrderedRelease(), 60_000_000.0, 1) == ReleasePlan("filter", None, 0.3, 60.0)
    assert release_plan(OrderedRelease("sync"), 60_000_000.0, None) == ReleasePlan("sync", None, 0.3, None)
    adaptive = OrderedRelease("adaptive", cost=5e-8, alpha=0)
    assert release_plan(adaptive, 60_000.0, 1000) == ReleasePlan("adaptive", 5e-8, 0.0, 60.0)
    with pytest.raises(OptionError, match="the time column holds numbers"):
        release_plan(adaptive, 60_000.0, None)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("both", {}, "method='both'"),
        ("filter", {"alpha": 0.1}, "cost and alpha with method='filter'"),
        ("sync", {"cost": 0.1}, "cost and alpha with method='sync'"),
        ("adaptive", {"alpha": 1.0}, "alpha=1.0"),
        ("adaptive", {"alpha": -0.1}, "alpha=-0.1"),
        ("adaptive", {"alpha": True}, "alpha=True"),
        ("adaptive", {"cost": 0}, "cost=0"),
        ("adaptive", {"cost": "1 ms"}, "cost='1 ms'"),
        ("adaptive", {"cost": float("inf")}, "cost=inf"),
        ("sync", {"dead_letters": "late"}, "dead_letters='late'"),
    ],
)
def test_what_makes_no_sense_is_refused(method, given, message):
    with pytest.raises(OptionError, match=message):
        OrderedRelease(method, **given)


def report(shard=0, batch_id=0, rates=(0.0, 0.0), comparisons=0, spent_s=0.0):
    counts = {
        field.name: 0
        for field in dataclasses.fields(JoinReport)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    given = {"shard": shard, "batch_id": batch_id, "bounds": {}, "rates": list(rates)}
    return JoinReport(**{**counts, **given}, comparisons=comparisons, spent_s=spent_s)


def planner(reports, cost_s=0.0005, alpha=0.3):
    plan = ReleasePlan("adaptive", cost_s, alpha, 60.0)
    return ReleasePlanner((7, 9), lambda: reports, plan)


def test_it_changes_at_the_load_alpha_and_back_below_it():
    reports = []
    ticks = planner(reports)
    start = ticks.initial()
    assert start["mode"] == "sync"
    assert ticks.messages(start) == []
    assert ticks.plan(start, 5) == start
    reports[:] = [report(rates=(0.5, 10.0))]
    assert ticks.plan(start, 5) == start
    reports[:] = [report(0, rates=(0.5, 10.0)), report(1, rates=(1.0, 5.0))]  # half of α in each shard
    held = ticks.plan(start, 5)
    assert (held["tick"], held["mode"], held["now_us"]) == (1, "filter", 5)
    assert held["load"] == pytest.approx(0.3)
    assert ticks.messages(json.loads(json.dumps(held))) == [(7, "filter"), (9, "filter")]
    assert ticks.plan(held, 6) == held, "no batch while it stays as it is"
    reports[:] = [report(rates=(0.1, 10.0))]
    back = ticks.plan(held, 4)
    assert (back["tick"], back["mode"], back["now_us"]) == (2, "sync", 5)
    assert ticks.messages(back) == [(7, "sync"), (9, "sync")]


def test_each_measured_batch_counts_once_and_half_of_those_before():
    cost = MeasuredCost()
    assert cost.each_s is None
    for _ in range(3):
        cost.see([report(0, 4, comparisons=100, spent_s=1.0), report(1, 4, comparisons=300, spent_s=1.0)])
    assert cost.each_s == pytest.approx(2 / 400)
    cost.see([report(0, 5, comparisons=200, spent_s=3.0), report(1, 4, comparisons=300, spent_s=1.0)])
    assert cost.each_s == pytest.approx((1 + 3) / (200 + 200))
    cost.see([report(0, 6)])
    assert cost.each_s == pytest.approx((1 + 3) / (200 + 200)), "nothing was compared"


def test_a_measured_cost_decides_and_is_journaled_for_a_restart():
    reports = [report(rates=(1.0, 10.0))]
    ticks = planner(reports, cost_s=None)
    start = ticks.initial()
    assert ticks.plan(start, 1) == start, "nothing has been measured"
    reports[:] = [report(0, 3, (1.0, 10.0), comparisons=1000, spent_s=0.5)]
    held = ticks.plan(start, 1)
    assert (held["mode"], held["cost"]) == ("filter", 0.0005)
    again = planner([report(0, 4, (0.1, 10.0))], cost_s=None)
    assert again.plan(held, 2)["mode"] == "sync"


def test_reports_and_settings_come_from_the_options(tmp_path):
    options = {**ReleasePlan("adaptive", 1e-7, 0.25, 60.0).options(), "feedback": str(tmp_path)}
    ticks = ReleasePlanner.of((3,), options)
    assert ticks.choice == ReleasePlan("adaptive", 1e-7, 0.25, 60.0)
    write_report(str(tmp_path), report(0, rates=(1000.0, 1000.0)))
    assert ticks.plan(ticks.initial(), 1)["mode"] == "filter"
