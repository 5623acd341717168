"""Accounting of staleness against a plain integrator that steps from event to event."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.conf.units import StalenessTarget
from upstream.operators.capacity.staleness import IntervalStaleness, Ramps, StalenessAccount

END = 1_000


def integrate(arrivals, commits, end, keys):
    """Area per key: at each moment now minus the arrival of the oldest update that no committed result covers."""
    times = sorted({0, end, *(t for _, t in arrivals), *(t for _, t, _ in commits)})
    area = [0.0] * keys
    for low, high in itertools.pairwise(times):
        for key in range(keys):
            covered = max((upto for k, t, upto in commits if k == key and t <= low), default=-1)
            pending = [t for i, (k, t) in enumerate(arrivals) if k == key and t <= low and i > covered]
            if pending:
                area[key] += ((high - min(pending)) ** 2 - (low - min(pending)) ** 2) / 2
    return area


@st.composite
def runs(draw):
    """Arrivals; and results, each covering all updates of its key up to one that arrived before."""
    keys = draw(st.integers(1, 4))
    times = sorted(draw(st.lists(st.integers(0, END), max_size=25)))
    arrivals = [(draw(st.integers(0, keys - 1)), time) for time in times]
    commits = []
    for key in range(keys):
        mine = [i for i, (k, _) in enumerate(arrivals) if k == key]
        done, last = 0, 0
        while done < len(mine) and draw(st.booleans()):
            upto = draw(st.integers(done, len(mine) - 1))
            last = draw(st.integers(max(last, arrivals[mine[upto]][1]), END))
            commits.append((key, last, mine[done], mine[upto]))
            done = upto + 1
    return keys, arrivals, sorted(commits, key=lambda each: (each[1], each[2]))


@given(run=runs(), cuts=st.lists(st.integers(0, 25), max_size=4), grows=st.booleans())
def test_area_is_that_of_a_plain_integrator(run, cuts, grows):
    keys, arrivals, commits = run
    account = StalenessAccount(0 if grows else keys)
    ramps, edges = [], sorted({0, len(commits), *(min(cut, len(commits)) for cut in cuts)})
    for low, high in itertools.pairwise(edges):
        part = commits[low:high]
        key = np.array([k for k, *_ in part], dtype=np.int64)
        first = np.array([arrivals[i][1] for _, _, i, _ in part], dtype=np.int64)
        ramps.append(account.deliver(key, first, np.array([t for _, t, *_ in part], dtype=np.int64)))
    covered = {k: upto for k, _, _, upto in commits}
    waiting = [(k, t) for i, (k, t) in enumerate(arrivals) if i > covered.get(k, -1)]
    pending = np.array([k for k, _ in waiting], dtype=np.int64), np.array([t for _, t in waiting], dtype=np.int64)
    found = account.finish(END, *pending)
    wanted = integrate(arrivals, [(k, t, upto) for k, t, _, upto in commits], END, keys)
    got = np.zeros(keys)
    got[: len(found.per_key)] = found.per_key * END * 1e-6 / 1e-12
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-6)
    ramps.append(account.open_ramps(END, *pending)[1])
    everything = Ramps.together(ramps)
    assert everything.areas().sum() / 1e-12 == pytest.approx(sum(wanted))

    # Quantiles: those of the staleness of every key at very many moments.
    shares = [0.1, 0.5, 0.9, 0.99, 1.0]
    exact = everything.quantiles_s(shares, keys * END / 1e6) * 1e6
    lengths = everything.high_us - everything.low_us
    samples = [low + np.arange(int(n) * 4) / 4 + 0.125 for low, n in zip(everything.low_us, lengths, strict=True)]
    filled = np.concatenate([np.empty(0), *samples])
    sampled = np.sort(np.concatenate([np.zeros(4 * keys * END - len(filled)), filled]))
    for share, value in zip(shares, exact, strict=True):
        assert np.mean(sampled <= value + 0.126) >= share - 1e-9
        assert np.mean(sampled < value - 0.126) <= share + 1e-9


def test_what_one_result_adds():
    account = StalenessAccount(2)
    account.deliver(np.array([0]), np.array([1_000_000]), 3_000_000)
    account.deliver(np.array([0]), np.array([2_000_000]), 6_000_000)  # arrived before the first commit: from 3 s to 6 s
    run = account.finish(10_000_000)
    assert run.per_key.tolist() == pytest.approx([(2.0 + (16 - 1) / 2) / 10, 0.0])
    assert run.mean == pytest.approx(run.per_key[0] / 2)
    assert run.stalest(1)[0].tolist() == [0]
    assert run.stalest(5)[0].tolist() == [0, 1]
    assert run.stalest(0)[0].tolist() == []


def test_weight_counts_a_key_several_times():
    account = StalenessAccount(2)
    account.deliver(np.array([0, 1]), np.array([0, 0]), 1_000_000, weight=np.array([3.0, 1.0]))
    account.deliver(np.array([1]), np.array([1_000_000]), 2_000_000)
    assert account.finish(2_000_000).mean == pytest.approx((3 * 0.25 + 0.5) / 4)


def test_a_run_that_starts_late_counts_from_its_start():
    account = StalenessAccount(1, start_us=5_000_000)
    account.deliver(np.array([0]), np.array([4_000_000]), 6_000_000)
    assert account.finish(7_000_000).per_key[0] == pytest.approx((4 - 1) / 2 / 2)


def test_an_interval():
    interval = IntervalStaleness.of(
        np.array([0, 1_000_000, 2_000_000]),
        4_000_000,
        now_us=5_000_000,
        pending_first_us=np.array([3_500_000, 3_000_000]),
        superseded=7,
    )
    assert (interval.mean, interval.p50, interval.max, interval.oldest) == (3.0, 3.0, 4.0, 2.0)
    assert interval.p99 == pytest.approx(3.98)
    assert (interval.applied, interval.superseded, interval.pending) == (3, 7, 2)
    nothing = IntervalStaleness.of(np.empty(0, np.int64), 5, now_us=5)
    assert (nothing.max, nothing.applied, nothing.oldest) == (0.0, 0, 0.0)


def test_a_target_is_met_or_not():
    figures = IntervalStaleness.of(np.array([0]), 10_000_000, now_us=0)
    met = {"p99 < 10 s": False, "p99<=10s": True, " MAX  < 1 minute ": True, "mean < 9999 ms": False}
    assert {text: StalenessTarget.parse(text).met(figures) for text in met} == met
    assert str(StalenessTarget.parse("p50 <= 1m 30s")) == "p50 <= 1 min 30 s"


@pytest.mark.parametrize(
    "text", ["", "p98 < 10 s", "p99 > 10 s", "p99 < ten", "p99 10 s", "p99 < 10", "p99 < -1 s", "max < 0 s", "< 1 s"]
)
def test_nonsense_is_refused(text):
    with pytest.raises(OptionError):
        StalenessTarget.parse(text)
