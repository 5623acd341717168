"""Which window of a key is its most recent update: worked out by hand."""

import numpy as np
import pytest

from upstream.conf.errors import OptionError
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.recent import NONE, latest_fully_arrived, latest_per_key, latest_started

SLIDING = SlidingWindows(range=4, slide=2)  # window w is [2 w - 2, 2 w + 2)
GAPS = SlidingWindows(range=1, slide=3)  # window w is [3 w + 2, 3 w + 3)
X = np.array([0, 1, 2, 5])


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
