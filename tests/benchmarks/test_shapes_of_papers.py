"""The checks of the figures' shapes: each passes a curve like the paper's, and reports the opposite."""

import pytest
from the_benchmarks.bai import falls_then_rises
from the_benchmarks.hammad import past_half
from the_benchmarks.simulator import Estimate
from the_benchmarks.thesis import latency, small_groups
from the_benchmarks.thesis_joins import slightly_less
from the_benchmarks.thesis_skew import as_many_rows
from the_benchmarks.tr620 import hump, order_of_queues

JOIN = {"needed": [0.81, 0.9, 0.96], "kept": [0.86, 1.2, 1.0], "more": 8_000}


def test_a_join_that_needs_slightly_less_passes():
    assert slightly_less(**JOIN) == []


@pytest.mark.parametrize(
    "other",
    [{"needed": [0.81, 0.9, 1.02]}, {"needed": [0.5, 0.9, 0.96]}, {"kept": [0.86, 1.3, 1.0]}, {"more": 20_000}],
)
def test_a_join_that_needs_more_is_reported(other):
    assert len(slightly_less(**{**JOIN, **other})) == 1


UNIONS = {"out_of_order": [100.0, 250.0, 400.0], "in_order": [100.0, 350.0, 600.0], "rows": [1.0, 1.0, 1.0]}


def test_as_many_rows_out_of_order_pass():
    assert as_many_rows(**UNIONS) == []


@pytest.mark.parametrize(
    "other",
    [
        {"rows": [1.0, 1.0, 1.2]},
        {"rows": [0.8, 1.0, 1.0]},
        {"out_of_order": UNIONS["in_order"], "in_order": UNIONS["out_of_order"]},
        {"out_of_order": [100.0, 250.0, 240.0]},
        {"in_order": [100.0, 400.0, 390.0]},
    ],
)
def test_other_memory_out_of_order_is_reported(other):
    assert as_many_rows(**{**UNIONS, **other})


QUEUES = {"none": 3500.0, "periodic": [500.0, 70.0, 15.0, 22.0, 86.0], "demand": 4.0}


def test_a_peak_queue_that_falls_then_rises_passes():
    assert falls_then_rises(**QUEUES) == []


@pytest.mark.parametrize(
    "other",
    [
        {"periodic": [500.0, 70.0, 15.0, 7.0, 5.0]},
        {"periodic": [70.0, 80.0, 90.0, 100.0, 110.0]},
        {"periodic": [500.0, 70.0, 3.0, 22.0, 86.0]},
        {"none": 300.0},
        {"demand": 40.0},
    ],
)
def test_a_peak_queue_of_another_shape_is_reported(other):
    assert falls_then_rises(**{**QUEUES, **other})


GAINS = {"loads": [0.3, 0.6, 0.72, 0.84], "gains": [0.26, 0.47, 0.54, 0.62]}


def test_a_gain_that_passes_one_half_passes():
    assert past_half(**GAINS) == []


@pytest.mark.parametrize(
    "gains", [[0.23, 0.37, 0.42, 0.46], [0.62, 0.54, 0.47, 0.26], [0.26, 0.52, 0.54, 0.62], [0.1, 0.47, 0.54, 0.62]]
)
def test_a_gain_of_another_shape_is_reported(gains):
    assert past_half(**{**GAINS, "gains": gains})


def test_groups_are_as_skewed_as_in_the_thesis():
    """Table 6-2."""
    found = [small_groups(80_000, small) for small in (1, 3, 5, 7, 9)]
    assert found == pytest.approx([39, 66, 77, 82, 87], abs=2)


@pytest.mark.parametrize(("panes", "operations"), [(False, [1.16, 1.2]), (True, [0.2, 0.3])])
def test_latency_as_on_the_page_passes(panes, operations):
    assert latency(operations, 1.3, panes=panes) == []


@pytest.mark.parametrize(
    ("operations", "time", "panes"),
    [
        ([1.2, 0.9], 1.3, False),
        ([1.2, 1.7], 1.3, False),
        ([0.3, 0.7], 1.3, True),
        ([0.2], 2.2, True),
        ([0.2], 0.7, True),
    ],
)
def test_another_latency_is_reported(operations, time, panes):
    assert latency(operations, time, panes=panes)


QUEUED = {"append": 792.0, "shed": 77.0, "fifo": 28.3, "in-place": 20.4}


def test_the_order_of_queues_in_the_report_passes():
    assert order_of_queues(10, 5, QUEUED) == []


@pytest.mark.parametrize(("one", "other"), [("append", "shed"), ("shed", "fifo"), ("fifo", "in-place")])
def test_two_policies_in_the_place_of_each_other_are_reported(one, other):
    assert order_of_queues(10, 5, {**QUEUED, one: QUEUED[other], other: QUEUED[one]})


HUMP = [1, 1, 1.01, 1.05, 1.05, 1.08, 1.12, 1.11, 1.09, 1, 1]


def ratios(means):
    return [Estimate(mean, 0.04) for mean in means]


def test_a_hump_near_eight_slow_keys_passes():
    assert hump(range(11), ratios(HUMP), gains=True) == []
    assert hump(range(11), ratios([1] * 11), gains=False) == []


@pytest.mark.parametrize("means", [[1 / each for each in HUMP], [1] * 11, HUMP[::-1], [1.1, *HUMP[1:]]])
def test_linecutting_of_another_shape_is_reported(means):
    assert hump(range(11), ratios(means), gains=True)
