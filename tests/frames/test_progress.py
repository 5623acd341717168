"""Progress policies and the outlier guard: hand-worked cases, recorded data, and splits of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.frames.bounds import is_finite
from upstream.frames.progress import Policy, PolicyName, Progress
from upstream.frames.times import NO_TIME, event_time_us

RECORDED = Path(__file__).parents[3] / "shared" / "data"
HOUR = 3_600_000_000


def bound_after(policy: Policy, times: list[int], now_us: int = 0) -> int | None:
    progress = Progress(policy)
    progress.observe(np.array(times, dtype=np.int64))
    progress.close_batch(now_us)
    return progress.bound


def test_each_policy_on_one_prefix() -> None:
    times = [10, 11, 30, 20, 12, 29]
    assert bound_after(Policy("ordered", confirmations=1), times) == 30
    assert bound_after(Policy("bounded", delay_us=7, confirmations=1), times) == 23
    assert bound_after(Policy("displaced", displacement=4, confirmations=1), times) == 11
    assert bound_after(Policy("displaced", displacement=3, confirmations=1), times) == 30
    assert bound_after(Policy("heartbeat"), [], now_us=77) == 77
    assert bound_after(Policy("latent"), times) is None


def test_embedded_believes_the_feed_unless_it_is_beyond_all_rows() -> None:
    progress = Progress(Policy("embedded", max_jump_us=100, confirmations=1))
    progress.observe(np.array([10, 20]))
    progress.observe_punctuation(15)
    progress.close_batch(0)
    assert progress.bound == 15
    progress.observe_punctuation(5000)
    progress.close_batch(0)
    assert progress.bound == 15
    progress.observe(np.array([4990]))
    progress.close_batch(0)
    assert progress.bound == 5000


def test_a_jump_counts_once_enough_rows_in_succession_confirm_it() -> None:
    policy = Policy("ordered", max_jump_us=10, confirmations=3)
    progress = Progress(policy)
    progress.observe(np.array([1, 2, 3, 500, 501]))
    progress.close_batch(0)
    assert (progress.bound, progress.suspects) == (3, 2)
    progress.observe(np.array([4]))  # breaks the run: the two stay suspect
    progress.observe(np.array([502, 503, 504]))
    progress.close_batch(0)
    assert (progress.bound, progress.suspects) == (504, 2)


def test_rows_below_the_promise_are_counted_late_and_the_bound_never_falls() -> None:
    progress = Progress(Policy("ordered", confirmations=1))
    progress.observe(np.array([10, 20, NO_TIME]))
    progress.close_batch(0)
    progress.observe(np.array([5, 19, 20]))
    progress.close_batch(0)
    assert (progress.bound, progress.late) == (20, 2)


def test_an_ended_feed_is_complete_up_to_all_it_has_shown() -> None:
    progress = Progress(Policy("bounded", delay_us=1000, max_jump_us=10, confirmations=2))
    progress.observe(np.array([1, 2, 3, 900]))
    progress.close_batch(0)
    progress.end()
    assert progress.bound == 901


names: st.SearchStrategy[PolicyName] = st.sampled_from(["ordered", "bounded", "displaced"])


@given(names, st.lists(st.integers(0, 200), max_size=80), st.data(), st.integers(1, 4), st.integers(0, 6))
def test_splits_and_snapshots_do_not_matter(
    name: PolicyName, times: list[int], data: st.DataObject, confirmations: int, displacement: int
) -> None:
    policy = Policy(name, delay_us=5, displacement=displacement, max_jump_us=20, confirmations=confirmations)
    whole = Progress(policy)
    whole.observe(np.array(times, dtype=np.int64))
    whole.close_batch(0)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=6)))
    split = Progress(policy)
    for low, high in zip([0, *cuts], [*cuts, len(times)], strict=True):
        split.observe(np.array(times[low:high], dtype=np.int64))
        split = Progress(policy, json.loads(json.dumps(split.snapshot())))
    split.close_batch(0)
    assert {**split.snapshot(), "late": 0} == {**whole.snapshot(), "late": 0}


def guard_by_loop(times: list[int], jump: int, confirmations: int) -> int | None:
    confirmed: int | None = None
    rest = list(times)
    while rest:
        if confirmed is None:
            if len(rest) < confirmations:
                return None
            confirmed = sorted(rest[:confirmations])[(confirmations - 1) // 2]
        elif rest[0] <= confirmed + jump:
            confirmed = max(confirmed, rest.pop(0))
        elif all(time > confirmed + jump for time in rest[:confirmations]):
            if len(rest) < confirmations:
                return confirmed
            confirmed = min(rest[:confirmations])
        else:
            rest.pop(0)
    return confirmed


@given(st.lists(st.integers(0, 300), max_size=80), st.integers(1, 60), st.integers(1, 4))
def test_the_guard_is_what_a_loop_over_the_rows_gives(times: list[int], jump: int, confirmations: int) -> None:
    policy = Policy("ordered", max_jump_us=jump, confirmations=confirmations)
    bound = bound_after(policy, times)
    assert (bound if is_finite(bound) else None) == guard_by_loop(times, jump, confirmations)


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded streams are not on this machine")
def test_far_future_rows_of_recorded_ships_do_not_move_progress() -> None:
    table = pyarrow.csv.read_csv(RECORDED / "ais.csv.gz")
    times = event_time_us(table["BaseDateTime"].cast(pa.timestamp("us")), None, "UTC")
    progress = Progress(Policy("bounded", delay_us=15 * 60_000_000 + 6_000_000))
    for low in range(0, len(times), 5000):
        progress.observe(times[low : low + 5000])
        progress.close_batch(0)
    midnight = int(times.min())
    assert progress.suspects == 352
    assert progress.bound is not None
    assert midnight < progress.bound < midnight + HOUR
    assert progress.late == 0
