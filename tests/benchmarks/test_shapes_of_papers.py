"""The checks of the figures' shapes: each passes a curve like the paper's, and reports the opposite."""

import pytest
from the_benchmarks.bai import falls_then_rises
from the_benchmarks.hammad import past_half
from the_benchmarks.simulator import Estimate
from the_benchmarks.thesis import latency, small_groups
from the_benchmarks.thesis_joins import slightly_less
from the_benchmarks.thesis_skew import as_many_rows
from the_benchmarks.tr620 import hump, order_of_queues

HUMP = [1, 1, 1.01, 1.05, 1.05, 1.08, 1.12, 1.11, 1.09, 1, 1]
DELAYS = [100.0, 350.0, 600.0]
QUEUED = {"append": 792.0, "shed": 77.0, "fifo": 28.3, "in-place": 20.4}


def queued(one, other):
    return {"staleness": {**QUEUED, one: QUEUED[other], other: QUEUED[one]}}


def ratios(means):
    return {"y": [Estimate(mean, 0.04) for mean in means]}


# The check, a curve like the paper's, and what is otherwise in those that are reported.
SHAPES = {
    "needs slightly less": (
        slightly_less,
        {"needed": [0.81, 0.9, 0.96], "kept": [0.86, 1.2, 1.0], "more": 8_000},
        [{"needed": [0.81, 0.9, 1.02]}, {"needed": [0.5, 0.9, 0.96]}, {"kept": [0.86, 1.3, 1.0]}, {"more": 20_000}],
    ),
    "as many rows": (
        as_many_rows,
        {"out_of_order": [100.0, 250.0, 400.0], "in_order": DELAYS, "rows": [1.0, 1.0, 1.0]},
        [
            {"rows": [1.0, 1.0, 1.2]}, {"rows": [0.8, 1.0, 1.0]}, {"out_of_order": [100.0, 250.0, 240.0]},
            {"out_of_order": DELAYS, "in_order": [100.0, 250.0, 400.0]}, {"in_order": [100.0, 400.0, 390.0]},
        ],
    ),
    "falls then rises": (
        falls_then_rises,
        {"none": 3500.0, "periodic": [500.0, 70.0, 15.0, 22.0, 86.0], "demand": 4.0},
        [
            {"periodic": [500.0, 70.0, 15.0, 7.0, 5.0]}, {"periodic": [70.0, 80.0, 90.0, 100.0, 110.0]},
            {"periodic": [500.0, 70.0, 3.0, 22.0, 86.0]}, {"none": 300.0}, {"demand": 40.0},
        ],
    ),
    "past one half": (
        past_half,
        {"loads": [0.3, 0.6, 0.72, 0.84], "gains": [0.26, 0.47, 0.54, 0.62]},
        [
            {"gains": [0.23, 0.37, 0.42, 0.46]}, {"gains": [0.62, 0.54, 0.47, 0.26]},
            {"gains": [0.26, 0.52, 0.54, 0.62]}, {"gains": [0.1, 0.47, 0.54, 0.62]},
        ],
    ),
    "latency without panes": (
        latency,
        {"operations": [1.16, 1.2], "time": 1.3, "panes": False},
        [{"operations": [1.2, 0.9]}, {"operations": [1.2, 1.7]}],
    ),
    "latency with panes": (
        latency,
        {"operations": [0.2, 0.3], "time": 1.3, "panes": True},
        [{"operations": [0.3, 0.7]}, {"operations": [0.2], "time": 2.2}, {"operations": [0.2], "time": 0.7}],
    ),
    "order of queues": (
        order_of_queues,
        {"keys": 10, "load": 5, "staleness": QUEUED},
        [queued("append", "shed"), queued("shed", "fifo"), queued("fifo", "in-place")],
    ),
    "hump near eight slow keys": (
        hump,
        {"x": range(11), **ratios(HUMP), "gains": True},
        [ratios(means) for means in ([1 / each for each in HUMP], [1] * 11, HUMP[::-1], [1.1, *HUMP[1:]])],
    ),
    "no hump": (hump, {"x": range(11), **ratios([1] * 11), "gains": False}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_of_the_paper_passes_and_another_is_reported(name):
    check, passes, others = SHAPES[name]
    assert check(**passes) == []
    assert [other for other in others if not check(**{**passes, **other})] == []


def test_groups_are_as_skewed_as_in_the_thesis():
    """Table 6-2."""
    found = [small_groups(80_000, small) for small in (1, 3, 5, 7, 9)]
    assert found == pytest.approx([39, 66, 77, 82, 87], abs=2)
