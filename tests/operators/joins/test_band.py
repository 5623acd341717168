import numpy as np
import pytest

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from upstream.operators.joins.band import LEFT, RIGHT, IntervalBand, TumblingBand, shifted, shifted_bound
from upstream.operators.runtime.feeds import ENDED


def test_both_ends_of_an_interval_meet():
    band = IntervalBand(2, 3)
    times = np.array([10])
    assert [each.tolist() for each in band.partners(LEFT, times)] == [[8], [13]]
    assert [each.tolist() for each in band.partners(RIGHT, times)] == [[7], [12]]
    assert (band.kept_from(LEFT, 10), band.kept_from(RIGHT, 10)) == (7, 8)


def test_a_window_holds_its_first_time_and_not_that_of_the_next():
    band = TumblingBand(5)
    least, greatest = band.partners(LEFT, np.array([4, 5, 9, -1]))
    assert least.tolist() == [0, 5, 5, -5]
    assert greatest.tolist() == [4, 9, 9, -1]
    assert [band.kept_from(LEFT, bound) for bound in (4, 5, 9, 10, -1)] == [0, 5, 5, 10, -5]


@pytest.mark.parametrize("band", [IntervalBand(2, 3), IntervalBand(-3, 5), TumblingBand(5)])
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_infinite_bounds_stay_infinite_and_many_bounds_let_go_as_each_does(band, side):
    assert (band.kept_from(side, LOWEST), band.kept_from(side, ENDED)) == (LOWEST, ENDED)
    bounds = [BEFORE_ALL, BEFORE_ALL + 1, -7, 0, 13, AFTER_ALL - 1, AFTER_ALL]
    each = band.kept_from_each(side, np.array(bounds, dtype=np.int64)).tolist()
    assert each == [band.kept_from(side, bound) for bound in bounds]


def test_times_do_not_wrap_at_the_ends_of_int64():
    ends = np.array([LOWEST, LOWEST + 1, 0, HIGHEST - 1, HIGHEST])
    assert shifted(ends, 2).tolist() == [LOWEST + 2, LOWEST + 3, 2, HIGHEST, HIGHEST]
    assert shifted(ends, -2).tolist() == [LOWEST, LOWEST, -2, HIGHEST - 3, HIGHEST - 2]
    assert shifted_bound(HIGHEST - 1, 5) == HIGHEST - 1
    assert shifted_bound(LOWEST + 1, -5) == LOWEST + 1
    assert TumblingBand(5).partners(LEFT, ends)[0].tolist()[0] == LOWEST
