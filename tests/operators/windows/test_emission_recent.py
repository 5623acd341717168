"""Which window of a key is its most recent update: worked out by hand, and for any rows as the definition has it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.operators.windows.emission import NONE, latest_fully_arrived, latest_per_key, latest_started
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows

SLIDING = SlidingWindows(range=4, slide=2)  # window w is [2 w - 2, 2 w + 2)
GAPS = SlidingWindows(range=1, slide=3)  # window w is [3 w + 2, 3 w + 3)
X = np.array([0, 1, 2, 5])

shapes = st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 9), st.integers(-5, 5))


def test_the_window_that_began_last():
    assert latest_started(SLIDING, X).tolist() == [1, 1, 2, 3]
    assert latest_started(GAPS, X).tolist() == [NONE, NONE, 0, 1]
    assert latest_started(SlideByTupleWindows(3), X).tolist() == [2, 3, 4, 7]
    with pytest.raises(OptionError, match="which all begin with the stream"):
        latest_started(LandmarkWindows(10), X)


def test_the_last_window_that_has_arrived():
    assert latest_fully_arrived(SLIDING, X, 1).tolist() == [1, 1, 1, NONE]
    assert latest_fully_arrived(SLIDING, X, np.array([0, -1, 5, 2])).tolist() == [0, NONE, 2, 2]
    assert latest_fully_arrived(LandmarkWindows(2), X, 1).tolist() == [1, 1, 1, NONE]
    assert latest_fully_arrived(GAPS, X, 9).tolist() == [NONE, NONE, 0, 1]


def test_the_greatest_of_each_key():
    found = latest_per_key(np.array([3, -7, 5, 4]), np.array([0, 2, 0, 0]), 4)
    assert (found.dtype, found.tolist()) == (np.dtype(np.int64), [5, NONE, -7, NONE])


@given(shapes, st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 60)), max_size=30), st.integers(-30, 80))
def test_most_recent_windows_are_those_of_the_definition(windows, rows, bound):
    codes = np.array([key for key, _ in rows], dtype=np.int64)
    x = np.array([value for _, value in rows], dtype=np.int64)
    ids = range(-80, 140)
    started = latest_per_key(latest_started(windows, x), codes, 4)
    arrived = latest_per_key(latest_fully_arrived(windows, x, windows.last_complete(bound)), codes, 4)
    for key in range(4):
        ends = {w: (int(low), int(high)) for w, low, high in zip(ids, *windows.extent(np.array(ids)), strict=True)}
        mine = [value for each, value in rows if each == key]
        held = [w for w, (low, high) in ends.items() if any(low <= value < high for value in mine)]
        complete = [w for w in held if ends[w][1] <= bound]
        assert started[key] == max(held, default=NONE)
        assert arrived[key] == max(complete, default=NONE)
