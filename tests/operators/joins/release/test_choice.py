import pytest

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.joins.release.choice import (
    ReleasePlan,
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


NOTHING = {"output": "all", "cost": None, "alpha": None, "late_location": None, "window": 60_000_000.0, "unit_us": 1}


def test_what_is_not_asked_for_is_not_done():
    assert release_plan(None, None, **NOTHING) is None


def test_results_are_held_unless_it_is_said_otherwise():
    assert release_plan("event_time", None, **NOTHING) == ReleasePlan("filter", None, 0.3, 60.0)
    assert release_plan("event_time", "sync", **{**NOTHING, "unit_us": None}) == ReleasePlan("sync", None, 0.3, None)
    given = {**NOTHING, "cost": 5e-8, "alpha": 0, "window": 60_000.0, "unit_us": 1000}
    assert release_plan("event_time", "adaptive", **given) == ReleasePlan("adaptive", 5e-8, 0.0, 60.0)


@pytest.mark.parametrize(
    ("order", "release", "given", "message"),
    [
        (None, "sync", {}, "release in a join whose results leave in any order"),
        (None, None, {"late_location": "x"}, "late_location in a join whose results"),
        (None, None, {"alpha": 0.1, "cost": 1.0}, "cost, alpha in a join whose results"),
        ("time", None, {}, "output_order='time'"),
        ("event_time", "both", {}, "release='both'"),
        ("event_time", None, {"output": "latest"}, "output='latest' with output_order"),
        ("event_time", None, {"alpha": 0.1}, "cost and alpha with release='filter'"),
        ("event_time", "sync", {"cost": 0.1}, "cost and alpha with release='sync'"),
        ("event_time", "adaptive", {"unit_us": None}, "the time column holds numbers"),
        ("event_time", "adaptive", {"alpha": 1.0}, "alpha=1.0"),
        ("event_time", "adaptive", {"alpha": -0.1}, "alpha=-0.1"),
        ("event_time", "adaptive", {"alpha": True}, "alpha=True"),
        ("event_time", "adaptive", {"cost": 0}, "cost=0"),
        ("event_time", "adaptive", {"cost": "1 ms"}, "cost='1 ms'"),
        ("event_time", "adaptive", {"cost": float("inf")}, "cost=inf"),
    ],
)
def test_what_makes_no_sense_is_refused(order, release, given, message):
    with pytest.raises(OptionError, match=message):
        release_plan(order, release, **{**NOTHING, **given})
