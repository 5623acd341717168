"""Days and months of time zones against Python's own local dates, instant by instant."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.kinds import Calendar, CalendarWindows, LandmarkWindows, SlidingWindows

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
    over = "sliding(range 7, slide 1, origin 0, attribute time)"
    assert str(windows) == f"calendar(calendar day in UTC, over {over})"
