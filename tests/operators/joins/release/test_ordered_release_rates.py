import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.joins.release.ordered_release import ArrivalRates

S = 1_000_000


def test_rows_are_divided_by_the_time_in_which_they_came():
    rates = ArrivalRates().seen(7, 9, 100 * S)
    assert rates.per_second == (0.0, 0.0), "nobody knows since when these came"
    rates = rates.seen(3, 30, 103 * S)
    assert rates.per_second == pytest.approx((1.0, 10.0))
    for second in range(104, 400):
        rates = rates.seen(2, 10, second * S)
    assert rates.per_second == pytest.approx((2.0, 10.0), rel=0.02)


def test_what_came_a_half_life_ago_counts_half():
    rates = ArrivalRates().seen(0, 0, S).seen(8, 0, 2 * S, half_life_s=1)
    # One second of eight rows, then one of none: half of the first, and the second.
    assert rates.seen(0, 0, 3 * S, half_life_s=1).per_second[0] == pytest.approx(8 * 0.5 / 1.5)


def test_a_clock_that_jumps_back_stands_still_and_a_tick_before_all_rows_is_no_arrival():
    rates = ArrivalRates().seen(0, 0, 0)
    assert rates.clock_us is None
    rates = rates.seen(1, 1, 10 * S).seen(1, 1, 12 * S)
    back = rates.seen(4, 0, 5 * S)
    assert back.clock_us == 12 * S
    assert back.seconds == rates.seconds
    assert back.left == rates.left + 4


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 10**9)), max_size=8))
def test_what_is_saved_goes_on_as_if_it_had_not_been(batches):
    one = two = ArrivalRates()
    for batch in batches:
        one = one.seen(*batch)
        two = ArrivalRates.from_json(json.loads(json.dumps(two.to_json()))).seen(*batch)
    assert one == two
    assert all(rate >= 0 for rate in one.per_second)
