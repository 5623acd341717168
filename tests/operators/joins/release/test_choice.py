import pytest

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.joins.release.choice import ReleasePlan, bounds_inside, choose, enters_up_to, load_of


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


def test_a_checkpoint_is_bound_to_whether_the_choice_comes_from_an_input():
    assert ReleasePlan("sync").identity() == ReleasePlan("filter").identity()
    assert ReleasePlan("sync").identity() != ReleasePlan("adaptive").identity()
    assert ReleasePlan("sync").changeable() == {"release": "sync"}
    assert ReleasePlan("adaptive", cost_s=0.1).changeable() == {"alpha": "0.3", "cost": "0.1 s"}
    assert (ReleasePlan("adaptive").first, ReleasePlan("filter").first) == ("sync", "filter")
