import dataclasses
import json

import pytest

from upstream.core.feedback.reports import JoinReport, write_report
from upstream.operators.joins.release.choice import MeasuredCost, ReleasePlan, ReleasePlanner


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
