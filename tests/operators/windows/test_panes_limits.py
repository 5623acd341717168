"""What windows need of one row or one key is known before they run."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.panes import MOST_RESULTS, MOST_WINDOWS, check_size, paned
from upstream.operators.windows.parse import landmark_by_time, window_by_time

ENTRY = 72


@given(length=st.integers(1, 3 * MOST_RESULTS), slide=st.integers(1, 400), at=st.integers(-(10**6), 10**6))
def test_refused_iff_some_row_is_in_too_many_windows(length, slide, at):
    windows = SlidingWindows(length, slide)
    first, last = windows.wids(np.arange(at, at + slide))
    most = int((last - first).max()) + 1
    for method, every, limit in (("wid", False, MOST_WINDOWS), ("paned", True, MOST_RESULTS)):
        refused = False
        try:
            check_size(paned(windows), method, every, ENTRY)
        except OptionError:
            refused = True
        assert refused == (most > limit)
    check_size(paned(windows), "paned", False, ENTRY)
    check_size(paned(windows), "buffering", False, ENTRY)


def test_windows_without_a_beginning_and_of_a_calendar_have_no_such_limit():
    for windows in (
        LandmarkWindows(1),
        landmark_by_time("1 day", zone="UTC"),
        window_by_time("10 years", "1 month", zone="UTC"),
    ):
        check_size(paned(windows), "paned", True, ENTRY)
