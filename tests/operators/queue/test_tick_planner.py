"""The budget finds the least staleness and does not swing; a budget is divided so that the oldest are served first."""

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.control import ControlChange, ControlLog
from upstream.core.feedback.reports import QueueReport, ServiceReport
from upstream.operators.queue.tick_planner import BatchCost, QueuePlanner, allot, auto_budget
from upstream.storage.folder import TableFolder


def settle(fixed, per_row, pending, duration_s, batches, cost=None, budget=2000):
    cost, seen = cost or BatchCost(), []
    for _ in range(batches):
        rows = min(budget, pending)
        cost = cost.seen(rows, fixed + per_row * rows, per_row * rows)
        budget = auto_budget(cost, budget, pending, duration_s)
        seen.append(budget)
    return cost, budget, seen


@pytest.mark.parametrize("duration_s", [None, 3.0])
def test_a_cost_that_jumps_tenfold_is_followed_without_swinging(duration_s):
    def best(per_row):
        return math.sqrt(20_000 * 0.5 / per_row / 2) if duration_s is None else (duration_s - 0.5) / per_row

    cost, budget, _ = settle(0.5, 0.0005, 20_000, duration_s, 20)
    assert budget == pytest.approx(best(0.0005), rel=0.2)
    cost, budget, seen = settle(0.5, 0.005, 20_000, duration_s, 25, cost, budget)
    assert budget == pytest.approx(best(0.005), rel=0.3)
    late = seen[-8:]
    assert max(late) < 1.3 * min(late)


@given(st.integers(0, 1000), st.floats(0.1, 3), st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3, 1e-2]))
def test_noise_does_not_make_the_budget_collapse(seed, fixed, per_row):
    generator = random.Random(seed)
    cost, budget, pending = BatchCost(), 2000, 20_000
    best = min(math.sqrt(pending * fixed / per_row / 2), pending)
    seen = []
    for _ in range(60):
        rows = min(budget, pending)
        flowing = per_row * rows * generator.uniform(0.8, 1.25)
        cost = cost.seen(rows, fixed * generator.uniform(0.8, 1.25) + flowing, flowing)
        budget = auto_budget(cost, budget, pending, None)
        seen.append(budget)
    assert best / 1.5 <= min(seen[10:])
    assert max(seen[10:]) <= 1.5 * best


def test_no_batch_is_larger_than_what_waits_or_smaller_than_one_row():
    cost = BatchCost().seen(10, 1.0).seen(20, 1.01)
    assert auto_budget(cost, 100, 60, None) <= 60
    assert auto_budget(BatchCost().seen(1, 100.0), 1, 10, 0.1) >= 1


@given(st.integers(0, 40), st.lists(st.lists(st.integers(0, 30), max_size=15), min_size=1, max_size=5))
def test_allotted_shares_serve_the_globally_oldest(budget, shards):
    places = [[[place, i + 1] for i, place in enumerate(sorted(each))] for each in shards]
    shares = allot(budget, places, len(shards))
    assert sum(shares) == budget
    served = sorted(place for each, share in zip(shards, shares, strict=True) for place in sorted(each)[:share])
    assert served == sorted(place for each in shards for place in each)[:budget]


def report(shard, waiting, now_us, **changes):
    figures = dict.fromkeys(
        [field.name for field in dataclasses.fields(QueueReport) if field.default is dataclasses.MISSING], 0
    )
    figures |= {"ready_at_us": 0 if waiting else None, "oldest_us": None, "places": [[1, waiting]] if waiting else []}
    return QueueReport(**figures | {"shard": shard, "waiting": waiting, "now_us": now_us} | changes)


def test_ticks_go_on_while_rows_wait_and_stop_when_none_does():
    reports, served = [], []
    planner = QueuePlanner((0, 1), lambda: reports, lambda: served, 10, auto=True)
    start = planner.initial()
    assert planner.plan(start, 5_000_000) == start
    reports = [report(0, 30, 5_000_000), report(1, 0, 5_000_000)]
    first = planner.plan(start, 6_000_000)
    assert (first["tick"], sum(first["shares"])) == (1, 10)
    assert [control.now_us for control in planner.controls(first)] == [6_000_000] * 2
    reports = [report(0, 20, 6_000_000, applied=10), report(1, 0, 6_000_000)]
    served = [
        ServiceReport(0, 6, 6_200_000, 6_800_000),
        ServiceReport(1, 4, 6_300_000, 6_900_000),
        ServiceReport(2, 9, 100, 200),
    ]
    second = planner.plan(first, 7_000_000)
    cost = BatchCost(**second["cost"])
    assert (cost.fixed, cost.per_row) == (pytest.approx(0.3), pytest.approx(0.07))
    reports = [report(0, 0, 7_000_000), report(1, 0, 7_000_000)]
    assert planner.plan(second, 8_000_000) == second


def test_a_clock_that_jumps_back_stands_still():
    planner = QueuePlanner((0,), lambda: [report(0, 5, 9_000_000)], list, 10)
    assert planner.plan({**planner.initial(), "now_us": 8_000_000}, 1_000_000)["now_us"] == 9_000_000


def test_keys_that_rest_cost_no_batches():
    planner = QueuePlanner((0,), lambda: [report(0, 5, 0, ready_at_us=50)], list, 10)
    start = planner.initial()
    assert planner.plan(start, 40) == start
    assert planner.plan(start, 50) != start


@pytest.mark.parametrize(
    ("waiting", "arrived", "drop"),
    [(10, 40, 0.75), (10, 5, 0.0), (15, 40, 0.875), (25, 40, 1.0)],  # of a budget of 10
)
def test_shedding_admits_what_the_next_batch_can_take(waiting, arrived, drop):
    reports = [report(0, waiting, 5_000_000, arrived=arrived)]
    planner = QueuePlanner((0,), lambda: reports, list, 10)
    assert planner.plan(planner.initial(), 6_000_000)["drop"] == pytest.approx(drop)


def test_keys_whose_rows_were_shed_count_for_the_budget():
    def budget(used):
        reports = [report(0, 100, 6_000_000, applied=100, used=used)]
        start = {**planner.initial(), "now_us": 6_000_000, "budget": 100}
        planner.reports = lambda: reports
        return planner.plan(start, 7_000_000)["budget"]

    planner = QueuePlanner((0,), list, lambda: [ServiceReport(0, 100, 6_500_000, 6_600_000)], 100, auto=True)
    assert budget(100) == 100
    assert budget(20_000) == 200  # twice the last one at most


def test_a_budget_changes_with_the_next_tick_which_is_due_at_once_and_is_undone(tmp_path):
    log = ControlLog(TableFolder(str(tmp_path)))

    def tick(start, now_us, **options):
        """By a planner that knows the journal alone."""
        folder = queue_folder(str(tmp_path), 1)
        planner = QueuePlanner.of((0, 1), {"feedback": folder, "auto": "true", "budget": "2000"})
        waiting = options.pop("waiting", 0)
        if waiting:
            planner.reports = lambda: [report(0, waiting, start["now_us"])]
        end = planner.plan(start, now_us)
        return end, [control.kept for control in planner.controls(end)]

    start = QueuePlanner.of((0, 1), {"feedback": queue_folder(str(tmp_path), 1), "auto": "true", "budget": "2000"})
    offset = start.initial()
    assert (offset["asked"], offset["queue"]) == ("auto", 1)
    assert tick(offset, 1)[0] == offset
    log.put(0, ControlChange("queue/1", "budget", 11, 1))
    offset, kept = tick(offset, 1_000_000)
    assert (offset["tick"], offset["budget"], offset["asked"], sum(offset["shares"])) == (1, 11, "11", 11)
    assert kept == [{"budget": 6}] * 2, "of batches that nothing asks for"
    assert tick(offset, 2_000_000)[0] == offset, "taken once"
    offset, kept = tick(offset, 2_000_000, waiting=30)
    assert (offset["budget"], offset["shares"], kept) == (11, [11, 0], [{"budget": 6}] * 2)
    log.put(1, ControlChange("queue/0", "budget", 3, 1))
    log.put(2, ControlChange("queue/1", "budget", "none", 1))
    log.put(3, ControlChange("queue/1", "sample", "now", 1))
    offset, kept = tick(offset, 3_000_000)
    assert [control.sample for control in start.controls(offset)] == [4, 4]
    assert (offset["budget"], offset["asked"], offset["shares"], kept) == (
        None,
        "none",
        [None, None],
        [{"budget": "all"}] * 2,
    )
    log.put(4, ControlChange("queue/1", "budget", "2 seconds", 1))
    offset, kept = tick(offset, 4_000_000)
    assert (offset["budget"], offset["asked"], kept) == (2000, "2.0 s", [{"budget": "last"}] * 2)
    log.put(5, ControlChange("queue/1", "budget", None, 1))
    offset, kept = tick(offset, 5_000_000)
    assert (offset["budget"], offset["asked"], kept) == (2000, "auto", [{}, {}])
    assert (offset["assumed"], offset["sampled"], offset["drop"]) == ("auto", "auto", 0.0)
    log.put(6, ControlChange("queue/1", "cost", "0.5 ms", 1))
    log.put(7, ControlChange("queue/1", "sampleRate", "0.25", 1))
    offset, kept = tick(offset, 6_000_000)
    assert (offset["assumed"], offset["sampled"], offset["drop"]) == ("0.5 ms", "0.25", 0.75)
    assert kept == [{"drop": 0.75, "cost_s": 0.001}] * 2, "two shards share the machine"
    log.put(8, ControlChange("queue/1", "cost", "auto", 1))
    log.put(9, ControlChange("queue/1", "sampleRate", "auto", 1))
    assert tick(offset, 7_000_000)[1] == [{"cost_s": None}] * 2, "measured, even if the program has another"
