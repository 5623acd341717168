from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.feedback.ages import Staleness
from upstream.operators.capacity.staleness import StalenessAccount
from upstream.sink.merge.batch_rows import UNKNOWN
from upstream.sink.merge.task import Arrivals


def test_ages_by_nearest_rank():
    found = Arrivals.of(np.array([8_000_000, 0, 9_000_000, 9_000_000, UNKNOWN])).staleness(10_000_000)
    assert found == Staleness(mean=3.5, p50=1.0, p99=10.0, max=10.0)
    # No rows, and a clock that was set back.
    assert Arrivals.of(None).staleness(5) is None
    assert Arrivals.of(np.array([UNKNOWN])).staleness(5) is None
    assert Arrivals.together([]).staleness(5) is None
    assert Arrivals.of(np.array([10])).staleness(5) == Staleness(0, 0, 0, 0)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=1), min_size=1, max_size=4))
def test_tasks_together_are_as_one(parts):
    together = Arrivals.together([Arrivals.of(np.array(part)) for part in parts])
    whole = Arrivals.of(np.concatenate([np.array(part) for part in parts]))
    assert together.staleness(10**9) == whole.staleness(10**9)


def test_many_arrivals_stay_small_and_nearly_right():
    arrivals = np.random.default_rng(1).integers(0, 10**9, 200_000)
    found = Arrivals.together([Arrivals.of(arrivals[:50_000]), Arrivals.of(arrivals[50_000:])])
    assert len(found.at_us) <= 4096 + 1
    assert found.count.sum() == len(arrivals)
    ages = (10**9 - arrivals) / 1e6
    seen = found.staleness(10**9)
    assert seen is not None
    assert seen.max == ages.max()
    assert [seen.mean, seen.p50, seen.p99] == pytest.approx([ages.mean(), *np.quantile(ages, [0.5, 0.99])], rel=2e-3)


@st.composite
def a_run(draw: Any) -> tuple[int, list[tuple[int, int]], list[int]]:
    """Arrivals of some keys, and the ends of batches; a batch delivers each key that has come since the key was last
    applied.
    """
    keys = draw(st.integers(1, 4))
    arrivals = draw(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, keys - 1)), min_size=1, max_size=30))
    plans = sorted(draw(st.sets(st.integers(10**6 // 4, 2 * 10**6), min_size=1, max_size=6)))
    return keys, sorted(arrivals), plans


@given(run=a_run(), budget=st.integers(1, 4), share=st.floats(0, 1))
def test_area_of_commits_encloses_that_of_the_account(run, budget, share):
    """Batches planned at some moments and committed later, each serving the keys that are stale longest."""
    keys, arrivals, plans = run
    account, least, most, previous = StalenessAccount(keys), 0.0, 0.0, None
    first: dict[int, int] = {}
    for place, planned in enumerate(plans):
        next_plan = plans[place + 1] if place + 1 < len(plans) else planned + 10**6
        committed = planned + int(share * (next_plan - planned))
        seen = 0 if place == 0 else plans[place - 1]
        for at, key in arrivals:
            if seen < at <= planned or (place == 0 and at == 0):
                first[key] = min(first.get(key, at), at)
        chosen = sorted(first, key=lambda key: (first[key], key))[:budget]
        ages = np.array([first.pop(key) for key in chosen], dtype=np.int64)
        account.deliver(np.array(chosen, dtype=np.int64), ages, committed)
        low, high = Arrivals.of(ages).area(committed, previous)
        least, most = least + low, most + high
        previous = committed
    end = plans[-1] + 10**6
    exact = account.finish(end).mean * keys * end / 1e6
    assert least <= exact + 1e-9
    assert exact <= most + 1e-9
    if budget >= keys and share == 0:  # nothing is in flight, nothing waits: both are exact
        assert least == pytest.approx(exact)
        assert most == pytest.approx(exact)
