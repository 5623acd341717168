"""Who is served when a batch has no time for all: against the best of all schedules, and over long runs."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.hosting.command_source import Candidate, chosen, next_served, seconds_for_results
from upstream.hosting.reports import HostReport, QueryReport


def run(weights, costs, seconds, batches):
    """Serve queries that have results in each batch of a second; return the batches in which each was served."""
    served: list[list[int]] = [[] for _ in weights]
    since = [0] * len(weights)
    for now in range(1, batches + 1):
        every = zip(weights, costs, since, strict=True)
        found = chosen((Candidate(n, w, now - s, c) for n, (w, c, s) in enumerate(every)), seconds)
        for number in found:
            served[number].append(now)
            since[number] = now
    return served


def staleness(served, end):
    """The mean over time of how old the oldest row is that no batch has put out; a row comes at each moment."""
    begins = [0, *served]
    return sum((until - at) ** 2 / 2 for at, until in itertools.pairwise([*begins, end])) / end


def best(weights, costs, seconds, length):
    """The least weighted staleness of all schedules that repeat after up to some batches."""
    numbers = range(len(weights))
    sets = [
        some
        for size in range(1, len(weights) + 1)
        for some in itertools.combinations(numbers, size)
        if size == 1 or sum(costs[each] for each in some) <= seconds
    ]
    sets = [one for one in sets if not any(set(one) < set(other) for other in sets)]
    least = math.inf
    for period in range(1, length + 1):
        for schedule in itertools.product(sets, repeat=period):
            total = 0.0
            for number in numbers:
                at = [place for place, some in enumerate(schedule) if number in some]
                if not at:
                    total = math.inf
                    break
                gaps = [later - earlier for earlier, later in itertools.pairwise([*at, at[0] + period])]
                total += weights[number] * sum(gap**2 / 2 for gap in gaps) / period
            least = min(least, total)
    return least


@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 4.0, 9.0]), min_size=2, max_size=4),
    costs=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=4, max_size=4),
    seconds=st.sampled_from([1.0, 2.0, 3.0, 4.0]),
)
def test_the_weighted_staleness_is_near_the_least_that_there_is(weights, costs, seconds):
    costs = [min(each, seconds) for each in costs[: len(weights)]]
    batches = 600
    served = run(weights, costs, seconds, batches)
    got = sum(w * staleness(each, batches) for w, each in zip(weights, served, strict=True))
    assert got <= 1.25 * best(weights, costs, seconds, 6)


@pytest.mark.parametrize(
    ("weight", "cost", "seconds"), [(1.0, 8.0, 12.0), (8.0, 1.0, 3.0), (27.0, 1.0, 3.0), (8.0, 8.0, 12.0)]
)
def test_the_time_between_turns_follows_cost_and_weight(weight, cost, seconds):
    served = run([1.0] * 240 + [weight], [1.0] * 240 + [cost], seconds, 1_000)
    turns = len(served[0]) / len(served[-1])
    assert turns == pytest.approx((cost / weight) ** (2 / 3), rel=0.1)


@given(
    weights=st.lists(st.sampled_from([0.01, 1.0, 100.0, 1e6]), min_size=2, max_size=6),
    costs=st.lists(st.sampled_from([0.01, 1.0, 5.0, 100.0]), min_size=6, max_size=6),
    seconds=st.sampled_from([0.0, 1.0, 6.0]),
)
def test_no_query_starves(weights, costs, seconds):
    costs = costs[: len(weights)]
    # It is served when its gain passes what all others can have after the batches that they need.
    light = min(range(len(weights)), key=lambda each: weights[each] / costs[each])
    ratio = max(weights) / min(weights) * max(costs) / min(costs)
    longest = math.ceil((ratio ** (2 / 3)) * len(weights)) + len(weights)
    now, age = 0, [1.0] * len(weights)
    age[light] = longest
    while True:
        every = zip(weights, age, costs, strict=True)
        found = chosen((Candidate(n, w, a, c) for n, (w, a, c) in enumerate(every)), seconds)
        assert found
        if light in found:
            return
        now += 1
        assert now <= len(weights)
        age = [1.0 if n in found else a + 1 for n, a in enumerate(age)]


def test_what_fits_exactly_is_served():
    three = [Candidate(n, 1.0, 1.0, 0.1) for n in range(4)]
    assert chosen(three, 0.1 + 0.1 + 0.1) == {0, 1, 2}
    assert chosen(three, 0.3) == {0, 1, 2}, "sums of decimals are not exact"
    assert chosen(three, 0.29) == {0, 1}
    assert chosen(three, 0.0) == {0}, "one has its turn"
    assert chosen([], 1.0) == frozenset()


def test_a_cheap_one_takes_the_time_that_is_left():
    assert chosen([Candidate(1, 9.0, 1.0, 1.0), Candidate(2, 9.0, 1.0, 2.0), Candidate(3, 0.1, 1.0, 0.5)], 1.6) == {
        1,
        3,
    }


def test_idle_queries_take_no_turn_and_no_time():
    idle = [Candidate(n, 1e6, 1.0, 1.0, likely=0.001) for n in range(20)]
    waiting = Candidate(99, 1.0, 1.0, 5.0)
    assert chosen([*idle, waiting], 1.0) == {*range(20), 99}
    busy = Candidate(50, 1e6, 1.0, 1.0, likely=0.5)
    assert chosen([busy, waiting], 1.0) == {50}


def test_urgent_ones_are_served_whatever_they_cost():
    urgent = [Candidate(n, 0.001, 0.0, 10.0, urgent=True) for n in (1, 2)]
    assert chosen([*urgent, Candidate(3, 1.0, 1.0, 1.0), Candidate(4, 1.0, 1.0, 1.0)], 5.0) == {1, 2, 3}


def test_results_take_what_is_left_of_a_batch():
    assert seconds_for_results(2.0, 0.5) == 1.5
    assert seconds_for_results(2.1, 2.0) == pytest.approx(0.1)
    assert seconds_for_results(2.0999, 2.0) == 0.1, "at least a twentieth of the rest"
    assert seconds_for_results(2.0, 40.0) == 2.0


SECOND = 1_000_000


def report(**queries):
    return HostReport(7, {int(name[1:]): each for name, each in queries.items()}, batch_s=1.0, fixed_s=0.5)


def test_all_are_served_while_there_is_time():
    begun = QueryReport(begun=True, cost_s=0.25)
    assert next_served({1: 1.0, 2: 4.0}, report(q1=begun, q2=begun), 1.0, 9 * SECOND) is None
    assert next_served({1: 1.0, 2: 4.0}, report(q1=begun, q2=begun), 0.9, 9 * SECOND) == {2}
    assert next_served({}, HostReport(), 1.0, 0) is None
    assert next_served({1: 1.0, 2: 1.0}, HostReport(), 0.001, 0) is None, "new ones"


def test_rows_that_come_during_a_batch_are_as_old_as_the_batch():
    fresh = QueryReport(begun=True, cost_s=1.0)
    waits = QueryReport(begun=True, cost_s=1.0, waiting_since_us=5 * SECOND)
    queries = report(q1=fresh, q2=waits)
    # A weight of 8 is worth as much as four times the age.
    assert next_served({1: 8.0, 2: 1.0}, queries, 1.0, 9 * SECOND - 1) == {1}
    assert next_served({1: 8.0, 2: 1.0}, queries, 1.0, 9 * SECOND + 1) == {2}


def test_a_query_that_has_not_begun_is_served_beside_the_others():
    waits = QueryReport(begun=True, cost_s=1.0, waiting_since_us=0)
    queries = report(q1=waits, q2=waits, q3=QueryReport())
    assert next_served({1: 1.0, 2: 2.0, 3: 0.1, 4: 0.1}, queries, 1.0, SECOND) == {2, 3, 4}
    assert next_served({1: 1.0, 2: 2.0}, queries, 1.0, SECOND) == {2}, "what is no longer registered is no candidate"


def test_what_is_seldom_there_costs_little():
    seldom = QueryReport(begun=True, cost_s=1.0, likely=0.01)
    many = report(**{f"q{n}": seldom for n in range(40)})
    weights = dict.fromkeys(range(40), 1.0)
    assert next_served(weights, many, 1.0, 0) is None
    found = next_served(weights, many, 0.8, 0)
    assert found is not None
    assert len(found) == 30
    unknown = report(q1=QueryReport(begun=True, cost_s=1.0), q2=QueryReport(begun=True, waiting_since_us=0))
    assert next_served({1: 1.0, 2: 1.0}, unknown, 2.0, 9 * SECOND) == {2}, "a cost that is not known is as the others'"
