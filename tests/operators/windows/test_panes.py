"""Windows over panes: the numbers that state is kept by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.operators.windows.kinds import (
    Calendar,
    CalendarWindows,
    LandmarkWindows,
    SlideByTupleWindows,
    SlidingWindows,
)
from upstream.operators.windows.panes import MOST_RESULTS, MOST_WINDOWS, check_size, paned
from upstream.operators.windows.parse import landmark_by_time, window_by_time


def ends(pair):
    return [each.tolist() for each in pair]


def test_sliding_windows_over_panes():
    found = paned(SlidingWindows(range=9, slide=6, origin=1))
    assert (found.over.range, found.over.slide, found.over.origin) == (3, 2, 0)
    assert found.pane_of(np.array([0, 1, 3, 4])).tolist() == [-1, 0, 0, 1]
    assert ends(found.first_and_last(np.array([0, 1]))) == [[-1, 1], [1, 3]]
    assert (found.endless, found.disjoint, found.by_row) == (False, False, False)
    assert (found.most_panes, found.most_windows) == (3, 2)


@pytest.mark.parametrize(
    ("range_", "slide", "disjoint", "windows"), [(6, 6, True, 1), (2, 6, True, 1), (12, 6, False, 2)]
)
def test_disjoint_windows(range_, slide, disjoint, windows):
    found = paned(SlidingWindows(range_, slide))
    assert (found.disjoint, found.most_windows) == (disjoint, windows)


def test_landmark_windows_over_panes():
    found = paned(LandmarkWindows(slide=10, origin=3))
    assert found.over == LandmarkWindows(1)
    assert found.pane_of(np.array([2, 3, 12, 13])).tolist() == [-1, 0, 0, 1]
    assert found.first_and_last(np.array([4]))[1].tolist() == [4]
    assert (found.endless, found.disjoint, found.by_row) == (True, False, False)
    assert (found.most_panes, found.most_windows) == (None, None)


def test_windows_that_rows_open_over_panes():
    windows = SlideByTupleWindows(range=5)
    found = paned(windows)
    assert found.windows is found.over is windows
    assert found.pane_of(np.array([7, 9], dtype=np.int32)).tolist() == [7, 9]
    assert ends(found.first_and_last(np.array([10]))) == [[6], [10]]
    assert (found.endless, found.disjoint, found.by_row) == (False, False, True)
    assert (found.most_panes, found.most_windows) == (5, None)
    assert paned(SlideByTupleWindows(5, every=2)).by_row


def test_windows_of_a_calendar_over_panes():
    windows = CalendarWindows(Calendar("UTC", "month"), SlidingWindows(range=2, slide=1))
    found = paned(windows)
    assert found.windows is windows
    assert found.over == SlidingWindows(2, 1)
    since = paned(CalendarWindows(Calendar("UTC", "month"), LandmarkWindows(slide=3)))
    assert (since.over, since.endless) == (LandmarkWindows(1), True)


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
