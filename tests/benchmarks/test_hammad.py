"""The model behind Hammad's figures: the paper's own example with its times, and the formulas."""

import pytest
from the_benchmarks.hammad import FAST, SLOW, Setting, chosen, even, leave, respond

T_P = 10_000
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("mode", "left_t"), [("sync", (12 * SECOND + T_P, 12 * SECOND + 2 * T_P)), ("filter", (12 * SECOND, 12 * SECOND))]
)
def test_the_example(mode, left_t):
    """Figure 1 (C): the slow stream is the one of which a8 comes 3 s late; comparing a row takes t_p."""
    arrivals = [(6, SLOW, 6), (6, FAST, 5), (9, FAST, 9), (10, FAST, 10), (11, SLOW, 8), (12, SLOW, 12)]
    arrivals = [(now * SECOND, stream, time * SECOND) for now, stream, time in arrivals]
    found = leave((T_P, T_P), arrivals, [mode] * len(arrivals))
    left = {(row.stream, row.time // SECOND): row.left for row in found}
    assert left[SLOW, 8] == 11 * SECOND + T_P
    assert (left[FAST, 9], left[FAST, 10]) == left_t


@pytest.mark.parametrize("cost", [1e-5, 5e-4, 1e-3])
def test_the_formulas_hold_at_a_constant_pace(cost):
    setting = Setting(cost, 60, 1, 10)
    arrivals = even(setting, 100, 1)
    assert setting.expected_filter == 0.55
    assert respond(setting, "filter", arrivals) == pytest.approx(setting.expected_filter, rel=0.02)
    assert respond(setting, "sync", arrivals) == pytest.approx(setting.expected_sync, rel=0.02)


@pytest.mark.parametrize(("cost", "way"), [(4e-4, "sync"), (7e-4, "filter")])
def test_the_choice_is_that_of_the_load(cost, way):
    setting = Setting(cost, 60, 1, 10)
    modes = list(chosen(setting, "adaptive", even(setting, 100, 1)))
    assert modes[0] == "sync"
    assert set(modes[len(modes) // 2 :]) == {way}
