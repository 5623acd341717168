"""The checks of the figures' shapes: each passes a curve like the paper's, and reports the opposite."""

import pytest
from the_benchmarks.bai import falls_then_rises
from the_benchmarks.thesis_joins import slightly_less
from the_benchmarks.thesis_skew import as_many_rows

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
