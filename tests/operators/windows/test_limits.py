"""What windows need of one row or one key is known before they run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.limits import MOST_PANES, MOST_RESULTS, MOST_WINDOWS, check_size
from upstream.operators.windows.panes import paned
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


def test_what_is_needed_is_said_and_what_to_do():
    day = paned(window_by_time("1 day", "1 s"))
    with pytest.raises(OptionError, match=r"each row would be in 86,400 windows: 6 MB.*at most 10,000.*method='paned'"):
        check_size(day, "wid", False, ENTRY)
    check_size(day, "paned", True, ENTRY)
    with pytest.raises(OptionError, match=r"one row would give 86,400,000 results.*output='latest'"):
        check_size(paned(window_by_time("1 day", "1 ms")), "paned", True, ENTRY)
    with pytest.raises(OptionError, match=r"consist of 3,600,000,000 panes: up to 241 GB.*SLIDE that divides RANGE"):
        check_size(paned(window_by_time("1 hour", "1.000001 s")), "paned", False, ENTRY)
    assert paned(window_by_time("1 hour", "1.000001 s")).most_panes == 3_600_000_000 > MOST_PANES


def test_windows_without_a_beginning_and_of_a_calendar_have_no_such_limit():
    for windows in (
        LandmarkWindows(1),
        landmark_by_time("1 day", zone="UTC"),
        window_by_time("10 years", "1 month", zone="UTC"),
    ):
        check_size(paned(windows), "paned", True, ENTRY)
