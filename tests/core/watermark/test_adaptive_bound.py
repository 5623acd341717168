"""The adaptive bound: what share of rows it leaves late, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.core.watermark.lateness import Lags
from upstream.core.watermark.policies import Policy, Progress
from upstream.core.watermark.skew import Skew

S = 1_000_000
Int64s = npt.NDArray[np.int64]


def run(times: Int64s, policy: Policy, batch: int) -> tuple[Progress, list[int]]:
    """Progress after batches of so many rows, and the bound after each."""
    progress, bounds = Progress(policy), []
    for low in range(0, len(times), batch):
        progress.observe(times[low : low + batch])
        progress.close_batch(0)
        if progress.bound is not None:
            bounds.append(progress.bound)
    return progress, bounds


DISORDERS = {
    "exponential": lambda random, n: random.exponential(2 * S, n),
    "uniform": lambda random, n: random.uniform(0, 30 * S, n),
    "heavy": lambda random, n: 1000 * (random.pareto(1.5, n) + 1),
    "two kinds": lambda random, n: np.where(random.random(n) < 0.05, random.uniform(50 * S, 60 * S, n), 1000),
}


@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("target", [0.001, 0.01])
@pytest.mark.parametrize("seed", [1, 2])
def test_on_stationary_disorder_the_share_that_is_late_comes_to_the_target(kind: str, target: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 300_000
    sent = np.arange(n) * 10_000
    times = sent[np.argsort(sent + DISORDERS[kind](random, n), kind="stable")]
    policy = Policy("adaptive", delay_us=600 * S, target_late=target)
    progress = run(times[: n // 3], policy, 500)[0]
    before = progress.late
    for low in range(n // 3, n, 500):
        progress.observe(times[low : low + 500])
        progress.close_batch(0)
    share = (progress.late - before) / (n - n // 3)
    assert share <= 2 * target
    # And it is not bought by waiting for ever: no longer than half of the share would need, and the width of a bin.
    largest = np.maximum.accumulate(times)
    lags = np.concatenate([[0], largest[:-1] - times[1:]])[n // 2 :]
    assert progress.delay_us <= 1.2 * np.quantile(np.maximum(lags, 0), 1 - target / 2) + 2


def test_until_enough_rows_have_come_the_bound_is_wide() -> None:
    policy = Policy("adaptive", delay_us=600 * S, target_late=0.01)
    times = np.arange(2000, dtype=np.int64) * S
    progress, _ = run(times[:999], policy, 100)
    assert progress.bound == 998 * S - 600 * S
    progress, _ = run(times, policy, 100)
    assert progress.bound == 1999 * S


def test_it_learns_anew_when_disorder_grows() -> None:
    random = np.random.default_rng(3)
    n = 400_000
    sent = np.arange(n) * 10_000
    delays = np.where(np.arange(n) < n // 4, random.uniform(0, S, n), random.uniform(0, 20 * S, n))
    times = sent[np.argsort(sent + delays, kind="stable")]
    policy = Policy("adaptive", delay_us=S, target_late=0.01)
    progress, _ = run(times[: n // 2], policy, 1000)
    before = progress.late
    for low in range(n // 2, n, 1000):
        progress.observe(times[low : low + 1000])
        progress.close_batch(0)
    assert (progress.late - before) / (n // 2) <= 0.02


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 300), max_size=120),
    st.lists(st.integers(0, 120), max_size=6),
    st.integers(1, 4),
    st.sampled_from([0.5, 0.1]),
)
def test_splits_and_snapshots_do_not_matter(
    times: list[int], cuts: list[int], confirmations: int, target: float
) -> None:
    policy = Policy("adaptive", delay_us=50, max_jump_us=60, confirmations=confirmations, target_late=target)
    given_times = np.array(times, dtype=np.int64)
    whole = Progress(policy)
    whole.observe(given_times)
    split = Progress(policy)
    for part in np.split(given_times, sorted(min(cut, len(times)) for cut in cuts)):
        split.observe(part)
        split = Progress(policy, through_json(split.snapshot()))
    for each in (whole, split):
        each.close_batch(1000)
    assert split.snapshot() == whole.snapshot()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 50))
def test_the_bound_never_decreases(times: list[int], batch: int) -> None:
    policy = Policy("adaptive", delay_us=10, max_jump_us=2000, confirmations=2, target_late=0.3)
    bounds = run(np.array(times, dtype=np.int64), policy, batch)[1]
    assert bounds == sorted(bounds)


@given(st.lists(st.integers(0, 2**40), max_size=200), st.sampled_from([0.5, 0.1, 0.01]))
def test_no_more_than_the_share_lies_beyond_the_delay_nor_many_less(lags: list[int], share: float) -> None:
    held = Lags(1 << 16)
    held.add(np.array(lags, dtype=np.int64))
    delay = held.exceeded_by(share)
    assert sum(lag > delay for lag in lags) <= share * len(lags)
    if delay:  # what lies a bin below is too little
        assert sum(lag * 2**0.125 >= delay for lag in lags) > share * len(lags)


@given(st.lists(st.integers(0, 1000), max_size=100), st.lists(st.integers(0, 100), max_size=5), st.integers(1, 20))
def test_a_histogram_forgets_at_the_same_rows_however_they_come(lags: list[int], cuts: list[int], half: int) -> None:
    given_lags = np.array(lags, dtype=np.int64)
    whole, split = Lags(half), Lags(half)
    whole.add(given_lags)
    for part in np.split(given_lags, sorted(cuts)):
        split.add(part)
        split = Lags(half, through_json(split.to_json()))
    assert split.to_json() == whole.to_json()


def test_skew_forgets_a_backlog_and_remembers_a_quiet_feed() -> None:
    skew = Skew()
    skew.observe(0, 10, 86_400 * S)  # a day's backlog
    for n in range(1, 200):
        now = (86_400 + 60 * n) * S
        skew.observe(now - 3 * S, now - 2 * S, now)
    assert (skew.smallest, skew.largest, skew.spread) == (2 * S, 3 * S, S)
    slow = Skew()
    slow.observe(0, 0, 7 * S)
    for n in range(1, 20):  # a row an hour
        slow.observe(n * 3600 * S, n * 3600 * S, (n * 3600 + 1) * S)
    assert slow.largest == 7 * S
