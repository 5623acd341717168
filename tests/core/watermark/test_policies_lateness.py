"""The histogram of lags: its bins, its halving and its quantile to the last figure."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.core.watermark.policies import Lags


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
