"""Days and months of time zones against Python's own local dates, instant by instant."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.calendars import Calendar, CalendarWindows
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
ZONES = ["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Kiritimati"]


def us(instant):
    return (instant - EPOCH) // dt.timedelta(microseconds=1)


def local_period(x, zone, unit):
    local = (EPOCH + dt.timedelta(microseconds=x)).astimezone(ZoneInfo(zone))
    return local.toordinal() - EPOCH.toordinal() if unit == "day" else (local.year - 1970) * 12 + local.month - 1


def day(text):
    return dt.date.fromisoformat(text).toordinal() - EPOCH.toordinal()


def length_in_hours(zone, unit, number):
    low, high = Calendar(zone, unit).beginnings(np.array([number, number + 1]))
    return (high - low) / HOUR


anywhen = st.integers(us(dt.datetime(1, 2, 3, tzinfo=UTC)), us(dt.datetime(9999, 12, 29, tzinfo=UTC)))
lately = st.integers(us(dt.datetime(1965, 1, 1, tzinfo=UTC)), us(dt.datetime(2060, 1, 1, tzinfo=UTC)))
units = st.sampled_from(["day", "month"])


@settings(max_examples=60)
@given(st.sampled_from(ZONES[:4]), units, st.lists(st.one_of(anywhen, lately), min_size=1, max_size=8))
def test_an_instant_is_in_its_local_day_and_month(zone, unit, x):
    calendar = Calendar(zone, unit)
    found = calendar.periods(np.array(x))
    assert found.tolist() == [local_period(each, zone, unit) for each in x]
    low, high = calendar.beginnings(found), calendar.beginnings(found + 1)
    assert ((low <= x) & (x < high)).all()
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
        assert [w for w, a, b in zip(nearby, starts, stops, strict=True) if a <= each < b] == wanted
        complete = int(windows.last_complete(each))
        assert [w for w, b in zip(nearby, stops, strict=True) if b <= each] == [w for w in nearby if w <= complete]
        a, b = windows.panes_of(np.array(nearby))
        assert [w for w, p, q in zip(nearby, a, b, strict=True) if p <= windows.pane_of(each) <= q] == wanted
        assert (windows.panes().extent(a)[0] == starts).all()
        assert (windows.panes().extent(b)[1] == stops).all()


@pytest.mark.parametrize(
    ("zone", "date", "hours"),
    [
        ("Europe/Paris", "2024-03-31", 23),
        ("Europe/Paris", "2024-10-27", 25),
        ("Europe/Paris", "2024-06-01", 24),
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("America/New_York", "2024-03-31", 24),
        ("Asia/Kathmandu", "2024-03-31", 24),
        ("Asia/Kathmandu", "1986-01-01", 23.75),  # 5:30 became 5:45
        ("Australia/Lord_Howe", "2024-04-07", 24.5),  # half an hour of summer time
        ("America/Sao_Paulo", "2018-11-04", 23),  # no midnight: the day begins at 1:00
        ("America/Havana", "2024-11-03", 25),  # two midnights: it begins at the first
        ("America/St_Johns", "2006-10-29", 25),  # at 0:01 back to the day before: what has begun goes on
        ("America/Toronto", "1919-03-31", 23.5),  # 23:30 became 0:30: the day begins at 0:30
        ("Pacific/Apia", "2011-12-30", 0),  # skipped at the date line
        ("Europe/Paris", "1969-12-31", 24),
        ("Europe/Paris", "2050-03-27", 23),  # Arrow stops changing clocks in 2037
        ("America/New_York", "2150-11-01", 25),  # Polars in 2099
        ("Europe/Paris", "9999-03-28", 23),
        ("Europe/Paris", "0001-03-28", 24),
        ("UTC", "2016-12-31", 24),  # ended with a leap second, which POSIX time does not count
    ],
)
def test_days_have_the_hours_that_they_have_there(zone, date, hours):
    assert length_in_hours(zone, "day", day(date)) == hours


def test_a_skipped_day_is_in_no_rows_windows():
    windows = CalendarWindows(Calendar("Pacific/Apia", "day"), SlidingWindows(1, 1))
    end = us(dt.datetime(2011, 12, 30, 10, tzinfo=UTC))  # local midnight that ends the 29th and begins the 31st
    assert windows.wids(np.array([end - 1, end]))[0].tolist() == [day("2011-12-29"), day("2011-12-31")]
    assert int(windows.last_complete(end)) == day("2011-12-30")


@pytest.mark.parametrize(
    ("zone", "date"),
    [
        ("America/St_Johns", "2006-04-02"),
        ("America/St_Johns", "2006-10-29"),
        ("America/Toronto", "1919-03-31"),
        ("America/Havana", "2024-03-10"),
        ("America/Havana", "2024-11-03"),
        ("America/Sao_Paulo", "2018-02-18"),
        ("Africa/Cairo", "2024-11-01"),
        ("Pacific/Apia", "2011-12-30"),
        ("Pacific/Kwajalein", "1993-08-21"),
    ],
)
def test_a_day_begins_when_clocks_first_show_its_date_or_a_later_one(zone, date):
    minutes = (day(date) * 24 * 60 + np.arange(-2 * 24 * 60, 2 * 24 * 60)) * 60_000_000
    shown = [local_period(each, zone, "day") for each in minutes.tolist()]
    assert Calendar(zone, "day").periods(minutes).tolist() == np.maximum.accumulate(shown).tolist()


@pytest.mark.parametrize(
    ("zone", "year", "month", "hours"),
    [
        ("Europe/Paris", 2024, 2, 29 * 24),
        ("Europe/Paris", 2023, 2, 28 * 24),
        ("Europe/Paris", 1900, 2, 28 * 24),
        ("Europe/Paris", 2024, 3, 31 * 24 - 1),
        ("America/New_York", 2024, 11, 30 * 24 + 1),
        ("Asia/Kathmandu", 2024, 3, 31 * 24),
        ("UTC", 2000, 2, 29 * 24),
    ],
)
def test_months_have_the_days_that_they_have(zone, year, month, hours):
    assert length_in_hours(zone, "month", (year - 1970) * 12 + month - 1) == hours


def test_time_zones_begin_their_days_at_their_own_midnight():
    number = day("2024-06-01")
    begins = {zone: int(Calendar(zone, "day").beginnings(number)) for zone in ZONES}
    midnight = us(dt.datetime(2024, 6, 1, tzinfo=UTC))
    assert (midnight - begins["Asia/Kathmandu"]) / HOUR == 5.75
    assert (midnight - begins["America/New_York"]) / HOUR == -4
    assert (midnight - begins["Pacific/Kiritimati"]) / HOUR == 14


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


def test_a_single_outlier_costs_nothing_but_its_own_years():
    x = np.array([us(dt.datetime(1, 1, 1, tzinfo=UTC)), 0, us(dt.datetime(9999, 12, 31, 23, tzinfo=UTC))])
    assert Calendar("UTC", "day").periods(x).tolist() == [day("0001-01-01"), 0, day("9999-12-31")]
    assert Calendar("Asia/Kathmandu", "month").periods(x).tolist() == [-1969 * 12, 0, (10000 - 1970) * 12]
    assert Calendar("UTC", "day").periods(np.array([], dtype=np.int64)).tolist() == []


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
