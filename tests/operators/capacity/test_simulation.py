"""The simulated server against a plain one, and against what can be derived."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.operators.capacity.simulation import (
    ArrivalTrace,
    Server,
    _covering,
    plan,
    shed_share,
    simulate,
    simulate_in_order,
)


def plain_in_place(at, key, cost, end):
    """(key, first enqueue, dequeue) of each service, step by step."""
    queue, served, now, i = {}, [], 0, 0
    while True:
        while i < len(at) and at[i] <= min(now, end):
            queue.setdefault(int(key[i]), int(at[i]))
            i += 1
        if not queue:
            if i == len(at) or at[i] > end:
                return served
            now = int(at[i])
            continue
        if now >= end:
            return served
        chosen = next(iter(queue))
        served.append((chosen, queue.pop(chosen), now))
        now += cost


@given(
    rows=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60),
    cost=st.integers(1, 9),
    looks=st.integers(1, 4),
)
def test_it_serves_as_a_plain_server_does(rows, cost, looks):
    rows = sorted(rows, key=lambda row: row[0])
    at = np.array([row[0] for row in rows], dtype=np.int64)
    key = np.array([row[1] for row in rows], dtype=np.int64)
    got = simulate(ArrivalTrace(at, key, 4), Server(cost), "in-place", 50, looks=looks)
    wanted = plain_in_place(at, key, cost, 50)
    assert got.applied == sum(start + cost <= 50 for *_, start in wanted)
    waited = sum(start - first for _, first, start in wanted)
    assert got.wait_s == pytest.approx(waited / len(wanted) / 1e6 if wanted else 0.0)
    served_ramps = sum((start - first) ** 2 / 2 for _, first, start in wanted)
    assert got.queue.ramps.areas().sum() * 1e12 >= served_ramps - 1e-6
    assert got.on_demand.effective == 1.0
    assert got.on_demand.average <= got.naive.average + 1e-9


@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=60),
    cost=st.integers(1, 9),
    fixed=st.integers(0, 5),
    budget=st.one_of(st.none(), st.integers(1, 5)),
)
def test_in_order_it_needs_no_queue(rows, cost, fixed, budget):
    rows = sorted(rows, key=lambda row: row[0])
    at, key = (np.array([row[column] for row in rows], dtype=np.int64) for column in range(2))
    arrivals, server = ArrivalTrace(at, key, 4), Server(cost, fixed, budget)
    queued, direct = simulate(arrivals, server, "append", 50), simulate_in_order(arrivals, server, 50)
    for figure in ("applied", "pending", "busy", "halfway"):
        assert getattr(direct, figure) == getattr(queued, figure)
    assert direct.application.mean == queued.application.mean
    assert queued.halfway == pytest.approx(simulate(arrivals, server, "append", 25).application.mean)


def test_shed_rows_keep_their_key_stale_until_the_next_admitted_one():
    """Keys 0 and 1; rows 0 and 2 of key 0 are dropped, and the last of key 1."""
    at, key = np.array([10, 20, 30, 40, 50, 60]), np.array([0, 1, 0, 0, 1, 1])
    stays = np.array([False, True, False, True, True, False])
    first, (alone, since) = _covering(at, key, stays)
    assert first.tolist() == [20, 10, 50]
    assert (alone.tolist(), since.tolist()) == ([1], [60])


def test_shedding_without_a_queue_is_shedding():
    """By other draws, so the figures agree as those of two seeds do."""
    assert (shed_share(0.5), shed_share(5)) == (0, pytest.approx(0.8))
    server, end = Server(100_000), 400_000_000
    came = random_arrivals(0, end)
    queued = [simulate(came, server, "shed", end, drop=shed_share(5), seed=seed) for seed in range(4)]
    direct = [simulate_in_order(came, server, end, drop=shed_share(5), seed=seed) for seed in range(4)]
    means = [[run.application.mean for run in runs] for runs in (queued, direct)]
    assert np.mean(means[0]) == pytest.approx(np.mean(means[1]), rel=0.15)


def test_a_coarser_server_takes_as_long_for_as_many_rows():
    assert Server(500).coarser(1) == Server(500)
    assert Server(500, budget=2).coarser(20) == Server(500, budget=40)
    fine, coarse = Server(500, 100, 2), Server(500, 100, 2).coarser(20)
    assert (coarse.budget, coarse.batch_us(40)) == (40, 20 * fine.batch_us(2))


@pytest.mark.parametrize("load", [2, 5, 10])
def test_one_key_at_a_constant_pace_in_closed_form(load):
    """Queue staleness (L - 1)²/2L, and L - 1/2L more until the commit, in updates (tr620 §5.1)."""
    cost, rows = 100_000, 1000
    at = np.arange(rows * load, dtype=np.int64) * cost // load
    got = simulate(ArrivalTrace(at, np.zeros_like(at), 1), Server(cost), "in-place", rows * cost)
    per_second = load * 1e6 / cost
    assert got.queue.mean * per_second == pytest.approx((load - 1) ** 2 / (2 * load), rel=0.01)
    assert (got.application.mean - got.queue.mean) * per_second == pytest.approx(load - 1 / (2 * load), rel=0.01)
    assert got.busy == pytest.approx(1.0)


def random_arrivals(seed, end_us, rate=50, keys=10):
    generator = np.random.default_rng(seed)
    at = np.sort(generator.integers(0, end_us, round(rate * end_us / 1e6)))
    return ArrivalTrace(at, generator.integers(0, keys, len(at)), keys)


def test_policies_stand_in_the_order_of_the_report():
    found = {each.policy: each for each in plan(random_arrivals, Server(100_000), 60_000_000, seeds=2)}
    assert found["in-place"].mean <= found["fifo"].mean < found["shed"].mean < found["append"].mean / 2
    assert found["append"].grows
    assert not found["in-place"].grows
    for each in found.values():
        assert each.p50 <= each.p99 <= each.max


def test_a_micro_batch_takes_what_waits():
    """All keys in one batch: staleness is between one and two batches, however many rows come."""
    got = simulate(random_arrivals(1, 60_000_000, 5000), Server(10, 1_000_000, None), "in-place", 60_000_000)
    assert 55 <= got.batches <= 60
    assert got.application.quantiles([0.5])[0] == pytest.approx(1.5, abs=0.1)


def test_a_server_that_costs_nothing_is_refused():
    with pytest.raises(OptionError, match="0 µs per row"):
        Server(0)
    with pytest.raises(OptionError, match="at least 1 row"):
        Server(1, budget=0)
