from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.frames.ages import Staleness
from upstream.sink.merge import UNKNOWN
from upstream.sink.staleness import Arrivals


def test_ages_by_nearest_rank() -> None:
    found = Arrivals.of(np.array([8_000_000, 0, 9_000_000, 9_000_000, UNKNOWN])).staleness(10_000_000)
    assert found == Staleness(mean=3.5, p50=1.0, p99=10.0, max=10.0)


def test_no_rows_and_a_clock_set_back() -> None:
    assert Arrivals.of(None).staleness(5) is None
    assert Arrivals.of(np.array([UNKNOWN])).staleness(5) is None
    assert Arrivals.together([]).staleness(5) is None
    assert Arrivals.of(np.array([10])).staleness(5) == Staleness(0, 0, 0, 0)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1), min_size=1, max_size=4))
def test_tasks_together_are_as_one(parts: list[list[int]]) -> None:
    together = Arrivals.together([Arrivals.of(np.array(part)) for part in parts])
    whole = Arrivals.of(np.concatenate([np.array(part) for part in parts]))
    assert together.staleness(10**9) == whole.staleness(10**9)


def test_many_arrivals_stay_small_and_nearly_right() -> None:
    arrivals = np.random.default_rng(1).integers(0, 10**9, 200_000)
    found = Arrivals.together([Arrivals.of(arrivals[:50_000]), Arrivals.of(arrivals[50_000:])])
    assert len(found.at_us) <= 4096 + 1
    assert found.count.sum() == len(arrivals)
    ages = (10**9 - arrivals) / 1e6
    seen = found.staleness(10**9)
    assert seen is not None
    assert seen.max == ages.max()
    assert [seen.mean, seen.p50, seen.p99] == pytest.approx([ages.mean(), *np.quantile(ages, [0.5, 0.99])], rel=2e-3)
