"""The model behind Hammad's figures: the paper's own example with its times, and the formulas."""

import pytest
from the_benchmarks.hammad import FAST, SLOW, Setting, chosen, even, leave, respond

S, T, T_P = SLOW, FAST, 10_000
SECOND = 1_000_000


def example(mode):
    """Figure 1 (C): S is the stream of which a8 comes 3 s late; comparing a row takes t_p."""
    arrivals = [(6, S, 6), (6, T, 5), (9, T, 9), (10, T, 10), (11, S, 8), (12, S, 12)]
    arrivals = [(now * SECOND, stream, time * SECOND) for now, stream, time in arrivals]
    found = leave((T_P, T_P), arrivals, [mode] * len(arrivals))
    return {("ST"[row.stream], row.time // SECOND): row.left for row in found}


def test_the_example_with_rows_in_order():
    left = example("sync")
    assert left["S", 8] == 11 * SECOND + T_P
    assert left["T", 9] == 12 * SECOND + T_P
    assert left["T", 10] == 12 * SECOND + 2 * T_P


def test_the_example_with_results_in_order():
    left = example("filter")
    assert left["S", 8] == 11 * SECOND + T_P
    assert left["T", 9] == left["T", 10] == 12 * SECOND


@pytest.mark.parametrize("cost", [1e-5, 5e-4, 1e-3])
def test_the_formulas_hold_at_a_constant_pace(cost):
    setting = Setting(cost, 60, 1, 10)
    arrivals = even(setting, 100, 1)
    assert setting.expected_filter == 0.55
    assert respond(setting, "filter", arrivals) == pytest.approx(setting.expected_filter, rel=0.02)
    assert respond(setting, "sync", arrivals) == pytest.approx(setting.expected_sync, rel=0.02)


def test_the_choice_is_that_of_the_load():
    for cost, way in ((4e-4, "sync"), (7e-4, "filter")):
        setting = Setting(cost, 60, 1, 10)
        modes = list(chosen(setting, "adaptive", even(setting, 100, 1)))
        assert modes[0] == "sync"
        assert set(modes[len(modes) // 2 :]) == {way}
