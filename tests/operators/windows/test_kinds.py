"""Every kind of window against its definition, read row by row and window by window."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows

IDS = range(-90, 91)
VALUES = range(-40, 41)
X = np.arange(VALUES.start, VALUES.stop)
W = np.arange(-60, 61)

slidings = st.builds(SlidingWindows, st.integers(1, 12), st.integers(1, 12), st.integers(-20, 20))
landmarks = st.builds(LandmarkWindows, st.integers(1, 12), st.integers(-20, 20))
by_tuple = st.builds(SlideByTupleWindows, st.integers(1, 12))
any_kind = st.one_of(slidings, landmarks, by_tuple)


def inside(windows, w, x):
    """The definitions of extent, as the thesis and the table in docs/windows.md write them."""
    if isinstance(windows, SlidingWindows):
        r, s, o = windows.range, windows.slide, windows.origin
        return o + (w + 1) * s - r <= x < o + (w + 1) * s
    if isinstance(windows, LandmarkWindows):
        return x < windows.origin + (w + 1) * windows.slide
    return w - windows.range < x <= w


@given(any_kind)
def test_a_row_is_in_an_extent_iff_the_window_is_in_its_wids(windows):
    first, last = windows.wids(X)
    for x, low, high in zip(VALUES, first, last, strict=True):
        assert [w for w in IDS if low <= w <= high] == [w for w in IDS if inside(windows, w, x)]


@given(any_kind)
def test_extent_holds_what_the_definition_says(windows):
    low, high = windows.extent(W)
    for w, start, end in zip(W.tolist(), low, high, strict=True):
        assert [x for x in VALUES if start <= x < end] == [x for x in VALUES if inside(windows, w, x)]


@given(any_kind)
def test_the_last_instant_of_a_window_is_inside_and_the_next_is_not(windows):
    last = windows.last_instant(W)
    for w, at in zip(W.tolist(), last.tolist(), strict=True):
        assert inside(windows, w, at)
        assert not inside(windows, w, at + 1)


@given(any_kind, st.integers(-40, 40))
def test_a_window_is_complete_iff_no_later_row_can_be_in_it(windows, bound):
    complete, live = int(windows.last_complete(bound)), int(windows.first_live(bound))
    assert live == complete + 1
    later, ids = range(bound, bound + 300), range(live - 15, live + 15)
    assert [w for w in ids if any(inside(windows, w, x) for x in later)] == [w for w in ids if w >= live]


@given(any_kind)
def test_what_is_complete_stays_complete(windows):
    bounds = np.concatenate([[LOWEST, LOWEST + 1], X, [HIGHEST - 1, HIGHEST]])
    complete = windows.last_complete(bounds)
    assert (np.diff(complete) >= 0).all()
    assert (windows.first_live(bounds) == complete + 1).all()


@given(slidings)
def test_panes_are_the_extents_cut_into_equal_pieces(windows):
    panes = windows.panes()
    assert windows.range % windows.pane == 0 == windows.slide % windows.pane
    low, high = windows.extent(W)
    first, last = windows.panes_of(W)
    assert ((last - first + 1) * windows.pane == windows.range).all()
    assert (panes.extent(first)[0] == low).all()
    assert (panes.extent(last)[1] == high).all()
    pane = windows.pane_of(X)
    for x, each in zip(VALUES, pane, strict=True):
        of_pane = [w for w, a, b in zip(W, first, last, strict=True) if a <= each <= b]
        assert of_pane == [w for w in W if inside(windows, w, x)]


@given(slidings)
def test_no_wider_panes_would_do(windows):
    ends = np.concatenate(windows.extent(W)) - windows.origin
    assert np.gcd.reduce(ends) == windows.pane


int64s = st.integers(LOWEST, HIGHEST)
lengths = st.one_of(st.integers(1, 1000), st.integers(1, HIGHEST))


@given(range_=lengths, slide=lengths, origin=int64s, x=st.lists(int64s, min_size=1, max_size=5))
def test_numbers_of_any_size_are_right_or_refused(range_, slide, origin, x):
    windows = SlidingWindows(range_, slide, origin)
    wanted = [[(each - origin) // slide, (each - origin + range_) // slide - 1] for each in x]
    if all(LOWEST <= end <= HIGHEST for each in wanted for end in each):
        assert np.transpose(windows.wids(np.array(x))).tolist() == wanted
        first = wanted[0][0]
        ends = [origin + (first + 1) * slide - range_, origin + (first + 1) * slide]
        if all(LOWEST <= end <= HIGHEST for end in ends):
            assert [int(end) for end in windows.extent(first)] == ends
            assert inside(windows, first, x[0]) == (ends[0] <= x[0] < ends[1])
        else:
            with pytest.raises(OptionError, match="64 bits"):
                windows.extent(first)
    else:
        with pytest.raises(OptionError, match="64 bits"):
            windows.wids(np.array(x))


@given(slide=lengths, origin=int64s, bounds=st.lists(int64s, min_size=2, max_size=6))
def test_any_int64_is_a_bound(slide, origin, bounds):
    windows = LandmarkWindows(slide, origin)
    bounds = np.array(sorted([*bounds, LOWEST, HIGHEST]))
    complete = windows.last_complete(bounds)
    wanted = [(bound - origin) // slide - 1 for bound in bounds.tolist()]
    assert complete.tolist() == [min(max(each, LOWEST), HIGHEST - 1) for each in wanted]


@given(w=int64s, range_=lengths)
def test_windows_that_end_with_a_row_are_right_or_refused(w, range_):
    windows = SlideByTupleWindows(range_)
    if w == HIGHEST or w - range_ + 1 < LOWEST:
        with pytest.raises(OptionError, match="64 bits"):
            windows.extent(w)
    else:
        assert [int(end) for end in windows.extent(w)] == [w - range_ + 1, w + 1]


def test_a_time_beyond_64_bits_is_an_error():
    windows = SlidingWindows(600, 60)
    for x in (HIGHEST + 1, LOWEST - 1, 2**70, np.array([2**63], dtype=np.uint64)):
        with pytest.raises(OptionError, match="64 bits"):
            windows.wids(x)
    assert int(windows.wids(np.array([7], dtype=np.uint64))[0][0]) == 0
    assert windows.wids(np.array([], dtype=np.uint8))[0].dtype == np.int64


@pytest.mark.parametrize("x", [1.5, np.array([1.0]), True, np.array(["a"]), np.array([1], dtype="M8[us]")])
def test_values_that_are_no_whole_numbers_are_an_error(x):
    with pytest.raises(SchemaError, match="whole numbers"):
        SlidingWindows(10, 10).wids(x)


@pytest.mark.parametrize("value", [0, -1, HIGHEST + 1, 1.0, True, None, "5", np.int64(5)])
def test_range_and_slide_must_be_positive_numbers(value):
    for make in (
        lambda: SlidingWindows(value, 1),
        lambda: SlidingWindows(1, value),
        lambda: LandmarkWindows(value),
        lambda: SlideByTupleWindows(value),
        lambda: SlideByTupleWindows(1, value),
    ):
        with pytest.raises(OptionError, match=r"(RANGE|SLIDE) is "):
            make()


@pytest.mark.parametrize("value", [HIGHEST + 1, LOWEST - 1, 0.0, None, True, np.int64(5)])
def test_origin_must_be_an_int64(value):
    for make in (lambda: SlidingWindows(1, 1, value), lambda: LandmarkWindows(1, value)):
        with pytest.raises(OptionError, match="origin is"):
            make()


rows = st.lists(st.integers(-30, 30), max_size=25)


@given(x=rows, range_=st.integers(1, 12), every=st.integers(1, 5), order=st.sampled_from(["arrival", "time"]))
def test_windows_of_every_nth_row(x, range_, every, order):
    windows = SlideByTupleWindows(range_, every, order)
    counted = sorted(x) if order == "time" else x
    ids = sorted({row for number, row in enumerate(counted, start=1) if number % every == 0})
    values = np.array(x, dtype=np.int64)
    number = np.empty(len(x), dtype=np.int64)
    number[np.argsort(values, kind="stable") if order == "time" else np.arange(len(x))] = np.arange(len(x))
    found = windows.windows(values, number)
    assert found.tolist() == ids
    first, last = windows.among(found, values)
    for row, low, high in zip(x, first, last, strict=True):
        assert ids[low : high + 1] == [w for w in ids if w - range_ < row <= w]


@given(x=st.lists(st.integers(-30, 30), min_size=1, max_size=25), range_=st.integers(1, 12), bound=st.integers(-30, 30))
def test_complete_windows_that_end_with_a_row_do_not_change(x, range_, bound):
    windows = SlideByTupleWindows(range_, every=1)
    early = [each for each in x if each < bound]
    assume(early)
    complete = int(windows.last_complete(bound))

    def contents(some):
        values = np.array(some)
        ids = windows.windows(values, np.arange(len(some)))
        return {int(w): sorted(row for row in some if w - range_ < row <= w) for w in ids if w <= complete}

    assert contents(early) == contents(x)


def test_windows_that_end_with_a_row_name_their_ends_as_they_are_defined():
    windows = SlideByTupleWindows(range=5)
    start, end = windows.start_and_end(np.array([10]))
    assert (start.tolist(), end.tolist()) == ([5], [10])  # 5 < x <= 10
    assert [each.tolist() for each in windows.extent(np.array([10]))] == [[6], [11]]


def test_kinds_by_their_numbers():
    windows = SlidingWindows(range=9, slide=6, origin=2, attribute="rank")
    assert windows.panes() == SlidingWindows(3, 3, 2, "rank")
    assert not windows.tumbling
    assert [end.tolist() for end in windows.start_and_end(np.array([0]))] == [[-1], [8]]
    far = SlidingWindows(range=2, slide=2**60 + 1)
    assert [int(end) for end in far.panes_of(1)] == [2**61, 2**61 + 1], "more than a float holds"
    assert [int(end) for end in SlideByTupleWindows(5).wids(10)] == [10, 14]
    assert SlideByTupleWindows(5, every=3).windows(np.array([9, 8, 7, 6, 5, 4]), np.arange(6)).tolist() == [4, 7]
    first, last = SlideByTupleWindows(2).among(np.array([3, 4, 4 + 1]), np.array([2, 3, 9]))
    assert (first.tolist(), last.tolist()) == ([0, 0, 3], [0, 1, 2])
    assert SlidingWindows(HIGHEST, HIGHEST, HIGHEST).range == HIGHEST
    assert LandmarkWindows(1, LOWEST).origin == LOWEST
