"""Progress policies and the outlier guard: hand-worked cases, recorded data, and splits of every kind."""

import json
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.places import RECORDED, needs_recorded

from upstream.core.rows.event_times import NO_TIME, event_time_us
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL, is_finite
from upstream.core.watermark.policies import FeedProgress, Lags, Policy, PolicyName, Skew

HOUR = 3_600_000_000


def bound_after(policy: Policy, times: list[int], now_us: int = 0) -> int | None:
    progress = FeedProgress(policy)
    progress.observe(np.array(times, dtype=np.int64))
    progress.close_batch(now_us)
    return progress.bound


def test_each_policy_on_one_prefix():
    times = [10, 11, 30, 20, 12, 29]
    assert bound_after(Policy("ordered", confirmations=1), times) == 30
    assert bound_after(Policy("bounded", delay_us=7, confirmations=1), times) == 23
    assert bound_after(Policy("displaced", displacement=4, confirmations=1), times) == 11
    assert bound_after(Policy("displaced", displacement=3, confirmations=1), times) == 30
    assert bound_after(Policy("arrival"), [], now_us=77) == 77
    assert bound_after(Policy("none"), times) is None


names: st.SearchStrategy[PolicyName] = st.sampled_from(["ordered", "bounded", "displaced", "adaptive", "embedded"])


@given(
    names,
    st.lists(st.integers(0, 200), max_size=80),
    st.lists(st.integers(0, 80), max_size=6),
    st.integers(1, 4),
    st.integers(0, 6),
)
@example("adaptive", [70, 60, 40], [2], 1, 0)
def test_splits_and_snapshots_do_not_matter(name, times, cuts, confirmations, displacement):
    policy = Policy(
        name, delay_us=5, displacement=displacement, max_jump_us=20, confirmations=confirmations, target_late=0.1
    )
    whole, split = FeedProgress(policy), FeedProgress(policy)
    for progress in (whole, split):
        progress.promise(50)  # as for a feed that is silent at first
        progress.observe_punctuation(60)
    whole.observe(np.array(times, dtype=np.int64))
    whole.close_batch(0)
    for low, high in pairwise([0, *sorted(cuts), len(times)]):
        split.observe(np.array(times[low:high], dtype=np.int64))
        split = FeedProgress(policy, through_json(split.snapshot()))
    split.close_batch(0)
    assert split.snapshot() == whole.snapshot()


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
def test_the_guard_is_what_a_loop_over_the_rows_gives(times, jump, confirmations):
    policy = Policy("ordered", max_jump_us=jump, confirmations=confirmations)
    bound = bound_after(policy, times)
    assert (bound if is_finite(bound) else None) == guard_by_loop(times, jump, confirmations)


@needs_recorded
def test_far_future_rows_of_recorded_ships_do_not_move_progress():
    table = pyarrow.csv.read_csv(RECORDED / "ais.csv.gz")
    times = event_time_us(table["BaseDateTime"].cast(pa.timestamp("us")), None, "UTC")
    progress = FeedProgress(Policy("bounded", delay_us=15 * 60_000_000 + 6_000_000))
    for low in range(0, len(times), 5000):
        progress.observe(times[low : low + 5000])
        progress.close_batch(0)
    midnight = int(times.min())
    assert progress.suspects == 352
    assert progress.bound is not None
    assert midnight < progress.bound < midnight + HOUR
    assert progress.late == 0


def seen(policy: Policy, *times: int, now_us: int | None = 0) -> FeedProgress:
    """Progress after one batch, or within it."""
    progress = FeedProgress(policy)
    progress.observe(np.array(times, dtype=np.int64))
    if now_us is not None:
        progress.close_batch(now_us)
    return progress


def test_times_that_wait_are_whole_numbers_beyond_what_floats_hold():
    displaced = seen(Policy("displaced", displacement=2, confirmations=2), 7, 9, 5).snapshot()
    assert json.dumps([displaced["run"], displaced["delayed"]]) == "[[7], [9, 5]]"


@pytest.mark.parametrize(("target", "half_life"), [(0.001, 64_000), (0.015, 4267), (0.1, 4096)])
def test_adaptive_forgets_as_slowly_as_its_target_needs(target, half_life):
    held = seen(Policy("adaptive", target_late=target, confirmations=1), *range(half_life - 1)).snapshot()["lags"]
    assert held == {"rows": half_life - 1, "bins": [[0, half_life - 1.0]]}
    held = seen(Policy("adaptive", target_late=target, confirmations=1), *range(half_life)).snapshot()["lags"]
    assert held == {"rows": half_life, "bins": [[0, half_life / 2]]}


def test_what_a_feed_is_about_to_confirm():
    policy = Policy("displaced", displacement=1, confirmations=4)
    assert FeedProgress(policy).likely is None
    assert seen(policy, 9).likely == 9
    assert seen(policy, 9, 5).likely == 5
    assert seen(policy, 9, 5, 7).likely == 7
    progress = seen(policy, 9, 5, 7, 8)
    assert (progress.likely, progress.largest, progress.suspects) == (7, None, 3)
    progress.observe(np.array([6]))
    assert (progress.likely, progress.largest, progress.suspects) == (9, 9, 0)


def test_a_feed_that_turned_out_to_hold_nothing_is_empty():
    policy = Policy("ordered", confirmations=1)
    progress = FeedProgress(policy)
    assert not progress.empty
    progress.begin()
    assert progress.bound == BEFORE_ALL
    assert progress.empty
    progress.observe(np.array([5]))
    assert not progress.empty
    assert not FeedProgress(policy, {"bound": 5, "own": 5}).empty
    silent = FeedProgress(Policy("none"))
    silent.begin()
    assert silent.bound is None


def test_delays_by_policy():
    assert FeedProgress(Policy("bounded", delay_us=7)).delay_us == 7
    assert FeedProgress(Policy("ordered", delay_us=7)).delay_us == 0
    policy = Policy("adaptive", delay_us=7, target_late=0.25, confirmations=1)
    times = [20, *[20] * 19, *[19] * 19]
    assert seen(policy, *times).delay_us == 7, "39 rows, of which 9.75 may be late"
    assert seen(policy, *times, 19).delay_us == 1
    assert seen(policy, 1000, 0).delay_us == 1023, "what has been learned is more than the least"


def test_late_rows_are_distinguished_from_those_that_silence_made_late():
    policy = Policy("ordered", confirmations=1)
    progress = seen(policy, 10, NO_TIME)
    assert (progress.bound, progress.reached) == (10, 10)
    progress.promise(20)
    progress.promise(15)
    assert (progress.bound, progress.reached) == (20, 20)
    progress.observe(np.array([9, 10, 19, 20]))
    assert (progress.received, progress.late, progress.late_idle) == (5, 3, 2)
    progress.observe(np.array([19, 9]))
    assert (progress.received, progress.late, progress.late_idle) == (7, 5, 3)
    silent = FeedProgress(policy)
    silent.promise(20)
    silent.observe(np.array([19, 20]))
    assert (silent.late, silent.late_idle) == (1, 1)
    silent.close()
    assert silent.bound == AFTER_ALL
    silent.observe(np.array([30, 5]))
    assert (silent.late, silent.late_idle, silent.received) == (3, 1, 4)


def test_closes():
    policy = Policy("ordered", confirmations=2, max_jump_us=10)
    progress = FeedProgress(policy)
    progress.close()
    assert progress.bound is None, "it has shown nothing"
    progress.begin()
    progress.close()
    assert (progress.bound, progress.reached) == (AFTER_ALL, None), "it has shown no time"
    progress = seen(policy, 1, 2, 3, 2, 50)
    assert progress.bound == 3
    for _ in range(2):
        progress.close()
        assert (progress.bound, progress.reached) == (AFTER_ALL, 51)
    progress = seen(Policy("displaced", displacement=2, confirmations=1), 3, 70, 60)
    assert progress.bound == 3
    progress.close()
    assert progress.reached == 71
    for name in ("from_table", "embedded"):  # with no row
        progress = FeedProgress(Policy(name))
        progress.observe_punctuation(8)
        progress.observe_punctuation(6)
        progress.close_batch(0)
        progress.close()
        assert (progress.bound, progress.reached) == (AFTER_ALL, 9)
    silent = seen(Policy("none"), 1, 2, 3, 4, 5, 6)
    silent.close()
    assert silent.bound is None
    silent.promise(4)
    silent.close()
    assert silent.bound == 4


def test_conclusions_at_their_edges():
    policy = Policy("embedded", max_jump_us=100, confirmations=1)
    for claimed, bound in ((120, 120), (121, BEFORE_ALL)):
        progress = seen(policy, 20, now_us=None)
        progress.observe_punctuation(claimed)
        progress.close_batch(0)
        assert progress.bound == bound
    progress.observe(np.array([30]))
    progress.close_batch(0)
    assert progress.bound == 121, "believed once a row comes near"
    assert seen(policy, 20).bound == BEFORE_ALL
    progress = FeedProgress(policy)
    progress.observe_punctuation(1)
    progress.close_batch(0)
    assert progress.bound is None, "it has shown no row"
    heartbeat = FeedProgress(Policy("arrival"))
    heartbeat.close_batch(50, waiting_us=40)
    assert heartbeat.bound == 40
    heartbeat.close_batch(45, waiting_us=60)
    assert heartbeat.bound == 45
    heartbeat.close_batch(30)
    assert (heartbeat.bound, heartbeat.snapshot()["own"]) == (45, 45)
    promised = FeedProgress(Policy("from_table"))
    promised.observe_punctuation(8)
    promised.close_batch(99)
    assert promised.bound == 8


def test_skew_is_of_rows_that_are_believed():
    policy = Policy("ordered", max_jump_us=10, confirmations=1)
    progress = seen(policy, 20, 30, 25, 20, 19, now_us=None)
    assert progress.snapshot()["batch"] == [20, 30], "the last is too far behind"
    assert seen(policy, 30, 20, 19, now_us=None).snapshot()["batch"] == [20, 30]
    later = seen(policy, 25, 30, now_us=None)
    later.observe(np.array([22, 26]))
    assert later.snapshot()["batch"] == [22, 30]
    progress.observe(np.array([40, 29]))
    assert progress.snapshot()["batch"] == [20, 40]
    progress.close_batch(100)
    assert progress.snapshot()["batch"] is None
    assert (progress.skew.smallest, progress.skew.largest) == (60, 80)
    progress.close_batch(500)
    assert progress.skew.latest == 60, "a batch without rows measures nothing"


def test_suspects_at_their_edges():
    policy = Policy("ordered", max_jump_us=10, confirmations=3)
    assert seen(policy, 1, 2, 3, 12).bound == 12, "the first three count as their median, and then each by itself"
    progress = seen(policy, 1, 1, 1, 12, 22)
    assert (progress.bound, progress.suspects, progress.snapshot()["run"]) == (1, 2, [12, 22])
    progress.observe(np.array([11, 22]))
    assert (progress.largest, progress.suspects) == (11, 3)
    progress.observe(np.array([22, 32]))
    assert (progress.largest, progress.suspects, progress.snapshot()["run"]) == (32, 2, [])
    progress = seen(policy, 1, 1, 1, 120, 100, 140)
    assert (progress.bound, progress.suspects) == (100, 2), "of a run the earliest is believed"
    assert seen(policy, 5, 900, 4).bound == 5
    assert seen(Policy("ordered", max_jump_us=10, confirmations=4), 5, 900, 4, 7).bound == 7


def test_many_rows_are_guarded_as_few_are():
    """Rows are looked at in steps; where a step ends is of no account."""
    policy = Policy("adaptive", delay_us=5, max_jump_us=20_000, confirmations=3, target_late=0.1)
    times = np.arange(200_000, dtype=np.int64) * 3
    times[::7] -= 20
    times[[1023, 1024, 3000, 70_000]] += 5_000_000
    times[150_000:] += 10_000
    whole, split = FeedProgress(policy), FeedProgress(policy)
    whole.observe(times)
    for part in np.split(times, range(0, len(times), 997)):
        split.observe(part)
    assert whole.snapshot() == split.snapshot()
    assert whole.largest == int(times[-1])
    assert whole.suspects == 4


S = 1_000_000


def run(
    times: npt.NDArray[np.int64], policy: Policy, batch: int, progress: FeedProgress | None = None
) -> tuple[FeedProgress, list[int]]:
    """Progress after batches of so many rows, and the bound after each."""
    progress, bounds = progress or FeedProgress(policy), []
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
def test_on_stationary_disorder_the_share_that_is_late_comes_to_the_target(kind, target):
    random = np.random.default_rng(1)
    n = 300_000
    sent = np.arange(n) * 10_000
    times = sent[np.argsort(sent + DISORDERS[kind](random, n), kind="stable")]
    policy = Policy("adaptive", delay_us=600 * S, target_late=target)
    progress = run(times[: n // 3], policy, 500)[0]
    before = progress.late
    run(times[n // 3 :], policy, 500, progress)
    assert (progress.late - before) / (n - n // 3) <= 2 * target
    # And it is not bought by waiting for ever: no longer than half of the share would need, and the width of a bin.
    largest = np.maximum.accumulate(times)
    lags = np.concatenate([[0], largest[:-1] - times[1:]])[n // 2 :]
    assert progress.delay_us <= 1.2 * np.quantile(np.maximum(lags, 0), 1 - target / 2) + 2


def test_it_learns_anew_when_disorder_grows():
    random = np.random.default_rng(3)
    n = 400_000
    sent = np.arange(n) * 10_000
    delays = np.where(np.arange(n) < n // 4, random.uniform(0, S, n), random.uniform(0, 20 * S, n))
    times = sent[np.argsort(sent + delays, kind="stable")]
    policy = Policy("adaptive", delay_us=S, target_late=0.01)
    progress, _ = run(times[: n // 2], policy, 1000)
    before = progress.late
    run(times[n // 2 :], policy, 1000, progress)
    assert (progress.late - before) / (n // 2) <= 0.02


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200), st.integers(1, 50))
def test_the_bound_never_decreases(times, batch):
    policy = Policy("adaptive", delay_us=10, max_jump_us=2000, confirmations=2, target_late=0.3)
    bounds = run(np.array(times, dtype=np.int64), policy, batch)[1]
    assert bounds == sorted(bounds)


def lags(half_life: int, *values: int) -> Lags:
    held = Lags(half_life)
    held.add(np.array(values, dtype=np.int64))
    return held


def test_bins_are_eighths_of_octaves():
    assert lags(100).to_json() == {"rows": 0, "bins": []}
    held = lags(100, 0, 1, 2, 1000, 1, 2**63 - 1)
    assert held.to_json() == {
        "rows": 6,
        "bins": [[0, 1.0], [1, 2.0], [9, 1.0], [80, 1.0], [505, 1.0]],
    }
    assert Lags(100, held.to_json()).to_json() == held.to_json()


def test_all_count_half_once_the_half_life_has_come():
    assert lags(4, 0, 1, 1).to_json() == {"rows": 3, "bins": [[0, 1.0], [1, 2.0]]}
    assert lags(4, 0, 1, 1, 2).to_json() == {"rows": 4, "bins": [[0, 0.5], [1, 1.0], [9, 0.5]]}
    assert lags(4, 0, 1, 1, 2, 1).to_json() == {"rows": 5, "bins": [[0, 0.5], [1, 2.0], [9, 0.5]]}
    assert lags(2, 0, 1, 0, 0, 0, 1).to_json() == {"rows": 6, "bins": [[0, 1.125], [1, 0.625]]}
    held = lags(4, 0, 1, 1)
    held.add(np.array([2, 1], dtype=np.int64))
    assert held.to_json() == lags(4, 0, 1, 1, 2, 1).to_json()


def test_the_least_delay_that_so_many_exceed():
    held = lags(100, 0, 1, 2, 1000)
    shares = [held.exceeded_by(share) for share in (1.0, 0.75, 0.74, 0.5, 0.49, 0.25, 0.24, 0.0)]
    assert shares == [0, 0, 1, 1, 2, 2, 1023, 1023]
    assert lags(100).exceeded_by(0.1) == 0
    assert lags(100, 0, 0).exceeded_by(0.0) == 0
    assert lags(100, 2**62).exceeded_by(0.5) == round(2 ** (497 / 8)) - 1


@given(st.lists(st.integers(0, 2**40), max_size=200), st.sampled_from([0.5, 0.1, 0.01]))
def test_no_more_than_the_share_lies_beyond_the_delay_nor_many_less(lags, share):
    held = Lags(1 << 16)
    held.add(np.array(lags, dtype=np.int64))
    delay = held.exceeded_by(share)
    assert sum(lag > delay for lag in lags) <= share * len(lags)
    if delay:  # what lies a bin below is too little
        assert sum(lag * 2**0.125 >= delay for lag in lags) > share * len(lags)


@given(st.lists(st.integers(0, 1000), max_size=100), st.lists(st.integers(0, 100), max_size=5), st.integers(1, 20))
def test_a_histogram_forgets_at_the_same_rows_however_they_come(lags, cuts, half):
    given_lags = np.array(lags, dtype=np.int64)
    whole, split = Lags(half), Lags(half)
    whole.add(given_lags)
    for part in np.split(given_lags, sorted(cuts)):
        split.add(part)
        split = Lags(half, through_json(split.to_json()))
    assert split.to_json() == whole.to_json()


SPAN = 600_000_000


def test_what_is_measured_of_each_batch():
    skew = Skew()
    nothing = {"smallest": None, "largest": None, "latest": None, "since": 0, "batches": 0, "now": None, "before": None}
    assert skew.to_json() == nothing
    skew.observe(10, 30, 100)
    first = {"smallest": 70, "largest": 90, "latest": 70, "since": 100, "batches": 1, "now": [70, 90]}
    assert skew.to_json() == nothing | first
    skew.observe(25, 25, 110)
    assert (skew.smallest, skew.largest, skew.latest) == (70, 90, 85)
    skew.observe(0, 60, 115)
    assert (skew.smallest, skew.largest, skew.latest) == (55, 115, 55)
    skew.observe(300, 310, 300)
    assert (skew.smallest, skew.largest, skew.latest) == (-10, 115, -10)
    assert Skew(through_json(skew.to_json())).to_json() == skew.to_json()


def test_eight_batches_are_enough_to_judge():
    skew = Skew()
    for n in range(7):
        skew.observe(n, n, 2 * n)
    assert skew.spread is None
    skew.observe(7, 7, 14)
    assert skew.spread == 7


def test_a_span_is_over_after_ten_minutes_and_32_batches():
    early, few, over = Skew(), Skew(), Skew()
    for skew, batches in ((early, 32), (few, 31), (over, 32)):
        for _ in range(batches):
            skew.observe(0, 1, 5)
    early.observe(SPAN, SPAN, SPAN + 4)
    few.observe(SPAN, SPAN, SPAN + 5)
    over.observe(SPAN, SPAN, SPAN + 5)
    assert (early.to_json()["batches"], early.to_json()["before"]) == (33, None)
    assert (few.to_json()["batches"], few.to_json()["before"]) == (32, None)
    assert over.to_json() == {
        "smallest": 4, "largest": 5, "latest": 5, "since": SPAN + 5, "batches": 1, "now": [5, 5], "before": [4, 5],
    }  # fmt: skip
    assert over.spread == 1, "the span before is enough to judge by"
    assert Skew(through_json(over.to_json())).to_json() == over.to_json()
    over.observe(SPAN - 1, SPAN + 9, SPAN + 10)
    assert (over.smallest, over.largest) == (1, 11)


def test_a_backlog_is_forgotten_and_a_quiet_feed_is_not():
    second = 1_000_000
    skew = Skew()
    skew.observe(0, 10, 86_400 * second)  # a day's backlog
    for n in range(1, 200):
        now = (86_400 + 60 * n) * second
        skew.observe(now - 3 * second, now - 2 * second, now)
    assert (skew.smallest, skew.largest, skew.spread) == (2 * second, 3 * second, second)
    slow = Skew()
    slow.observe(0, 0, 7 * second)
    for n in range(1, 20):  # a row an hour
        slow.observe(n * 3600 * second, n * 3600 * second, (n * 3600 + 1) * second)
    assert slow.largest == 7 * second
