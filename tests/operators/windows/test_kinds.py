"""Every kind of window against its definition, read row by row and window by window."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.kinds import (
    Calendar,
    CalendarWindows,
    LandmarkWindows,
    SlideByTupleWindows,
    SlidingWindows,
)

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
    live = int(windows.last_complete(bound)) + 1
    later, ids = range(bound, bound + 300), range(live - 15, live + 15)
    assert [w for w in ids if any(inside(windows, w, x) for x in later)] == [w for w in ids if w >= live]


@given(any_kind)
def test_what_is_complete_stays_complete(windows):
    bounds = np.concatenate([[LOWEST, LOWEST + 1], X, [HIGHEST - 1, HIGHEST]])
    complete = windows.last_complete(bounds)
    assert (np.diff(complete) >= 0).all()


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


UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Kiritimati"]


def us(instant):
    return (instant - EPOCH) // dt.timedelta(microseconds=1)


def local_period(x, zone, unit):
    local = (EPOCH + dt.timedelta(microseconds=x)).astimezone(ZoneInfo(zone))
    return local.toordinal() - EPOCH.toordinal() if unit == "day" else (local.year - 1970) * 12 + local.month - 1


def day(text):
    return dt.date.fromisoformat(text).toordinal() - EPOCH.toordinal()


anywhen = st.integers(us(dt.datetime(1, 2, 3, tzinfo=UTC)), us(dt.datetime(9999, 12, 29, tzinfo=UTC)))
lately = st.integers(us(dt.datetime(1965, 1, 1, tzinfo=UTC)), us(dt.datetime(2060, 1, 1, tzinfo=UTC)))
units = st.sampled_from(["day", "month"])


@settings(max_examples=60)
@given(st.sampled_from(ZONES[:4]), units, st.lists(st.one_of(anywhen, lately), max_size=8))
def test_an_instant_is_in_its_local_day_and_month(zone, unit, x):
    calendar, instants = Calendar(zone, unit), np.array(x, dtype=np.int64)
    found = calendar.periods(instants)
    assert found.tolist() == [local_period(each, zone, unit) for each in x]
    low, high = calendar.beginnings(found), calendar.beginnings(found + 1)
    assert ((low <= instants) & (instants < high)).all()
    for begin in low.tolist():
        assert local_period(begin, zone, unit) == local_period(begin - 1, zone, unit) + 1


@settings(max_examples=60)
@given(
    st.sampled_from(ZONES), units, st.integers(1, 5), st.integers(1, 5), st.integers(-9, 9),
    st.lists(lately, min_size=1, max_size=5),
)  # fmt: skip
def test_calendar_windows_are_windows_of_local_dates(zone, unit, range_, slide, origin, x):
    windows = CalendarWindows(Calendar(zone, unit), SlidingWindows(range_, slide, origin))
    first, last = windows.wids(np.array(x))
    for each, low, high in zip(x, first.tolist(), last.tolist(), strict=True):
        period = local_period(each, zone, unit)
        nearby = range((period - origin) // slide - 9, (period - origin) // slide + 9)
        ends = [origin + (w + 1) * slide for w in nearby]
        wanted = [w for w, end in zip(nearby, ends, strict=True) if end - range_ <= period < end]
        assert list(range(low, high + 1)) == wanted
        starts, stops = windows.extent(np.array(nearby))
        assert (windows.last_instant(np.array(nearby)) == stops - 1).all()
        assert [w for w, a, b in zip(nearby, starts, stops, strict=True) if a <= each < b] == wanted
        complete = int(windows.last_complete(each))
        assert [w for w, b in zip(nearby, stops, strict=True) if b <= each] == [w for w in nearby if w <= complete]
        a, b = windows.panes_of(np.array(nearby))
        assert [w for w, p, q in zip(nearby, a, b, strict=True) if p <= windows.pane_of(each) <= q] == wanted
        assert (windows.panes().extent(a)[0] == starts).all()
        assert (windows.panes().extent(b)[1] == stops).all()


def test_a_skipped_day_is_in_no_rows_windows():
    windows = CalendarWindows(Calendar("Pacific/Apia", "day"), SlidingWindows(1, 1))
    end = us(dt.datetime(2011, 12, 30, 10, tzinfo=UTC))  # local midnight that ends the 29th and begins the 31st
    assert windows.wids(np.array([end - 1, end]))[0].tolist() == [day("2011-12-29"), day("2011-12-31")]
    assert int(windows.last_complete(end)) == day("2011-12-30")


@pytest.mark.parametrize(
    ("zone", "date"),
    [
        ("America/St_Johns", "2006-04-02"),
        ("America/St_Johns", "2006-10-29"),  # at 0:01 back to the day before: what has begun goes on
        ("America/Toronto", "1919-03-31"),  # 23:30 became 0:30: the day begins at 0:30
        ("America/Havana", "2024-03-10"),
        ("America/Havana", "2024-11-03"),  # two midnights: it begins at the first
        ("America/Sao_Paulo", "2018-02-18"),
        ("America/Sao_Paulo", "2018-11-04"),  # no midnight: the day begins at 1:00
        ("America/New_York", "2150-11-01"),  # Arrow stops changing clocks in 2037, and Polars in 2099
        ("Africa/Cairo", "2024-11-01"),
        ("Asia/Kathmandu", "1986-01-01"),  # 5:30 became 5:45
        ("Australia/Lord_Howe", "2024-04-07"),  # half an hour of summer time
        ("Europe/Paris", "2024-03-31"),
        ("Pacific/Apia", "2011-12-30"),  # skipped at the date line
        ("Pacific/Kwajalein", "1993-08-21"),
    ],
)
def test_a_day_begins_when_clocks_first_show_its_date_or_a_later_one(zone, date):
    minutes = (day(date) * 24 * 60 + np.arange(-2 * 24 * 60, 2 * 24 * 60)) * 60_000_000
    shown = np.maximum.accumulate([local_period(each, zone, "day") for each in minutes.tolist()])
    assert Calendar(zone, "day").periods(minutes).tolist() == shown.tolist()
    days = np.arange(shown[0] + 1, shown[-1] + 1)
    assert Calendar(zone, "day").beginnings(days).tolist() == minutes[np.searchsorted(shown, days)].tolist()


@given(st.integers(-289_000, 293_000), st.sampled_from(ZONES), units)
@settings(max_examples=40)
def test_the_calendar_goes_on_beyond_pythons_years(year, zone, unit):
    """400 years are 146 097 days; nothing but the number of such cycles differs."""
    calendar = Calendar(zone, unit)
    cycles = (year - 2400) // 400 if year >= 2400 else (year - 1200) // 400 if year < 1600 else 0
    here = np.arange(-3, 40) + (year - 1970) * 12 if unit == "month" else np.arange(-3, 400) + (year - 1970) * 365
    there = here - cycles * (4800 if unit == "month" else 146_097)
    moved = np.array(cycles * 146_097 * 86_400_000_000)
    assert (calendar.beginnings(here) == calendar.beginnings(there) + moved).all()
    begins = calendar.beginnings(here)
    assert (calendar.periods(begins) == here).all() or zone == "Pacific/Kiritimati"
    assert (np.diff(begins) > 0).all() or zone == "Pacific/Kiritimati"


@pytest.mark.parametrize("x", [LOWEST, HIGHEST])
def test_years_that_no_calendar_has_are_an_error_for_rows_but_not_for_bounds(x):
    for unit in ("day", "month"):
        windows = CalendarWindows(Calendar("Europe/Paris", unit), SlidingWindows(3, 1))
        with pytest.raises(OptionError, match="year"):
            windows.wids(np.array([0, x]))
        with pytest.raises(OptionError, match="year"):
            windows.extent(np.array([0, x // 4]))
        nearer = int(windows.last_complete(x // 2))
        complete = int(windows.last_complete(x))
        assert complete < nearer if x < 0 else complete > nearer


def test_running_totals_by_month():
    windows = CalendarWindows(Calendar("Europe/Paris", "month"), LandmarkWindows(1))
    low, high = windows.extent(np.array([0]))
    assert low[0] == LOWEST
    assert high[0] == us(dt.datetime(1970, 1, 31, 23, tzinfo=UTC))
    first, last = windows.wids(high)
    assert (first[0], last[0]) == (1, HIGHEST)
    with pytest.raises(OptionError, match="no panes"):
        windows.panes()


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "+02:00", "../etc/passwd", None])
def test_an_unknown_zone_is_reported_with_what_to_write(zone):
    with pytest.raises(OptionError, match="IANA name"):
        Calendar(zone, "day")


def test_the_text_of_windows_has_no_name_of_a_class():
    windows = CalendarWindows(Calendar("UTC", "day"), SlidingWindows(7, 1))
    assert str(windows) == "calendar(day in UTC, over sliding(range 7 days, slide 1 day))"
    assert str(SlidingWindows(600_000_000, 1_500_000, -60_000_000)) == (
        "sliding(range 10 minutes, slide 1500 milliseconds, origin -1 minute)"
    )
    assert str(SlidingWindows(100, 10, attribute="rank")) == "sliding(range 100, slide 10, attribute rank)"
    assert str(SlideByTupleWindows(60_000_000, 2)) == "rows(range 1 minute, every 2)"
