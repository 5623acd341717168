"""What people write, and what they are told when it is no window."""

import datetime as dt

import numpy as np
import pytest

from upstream.conf.errors import OptionError
from upstream.operators.windows.kinds import (
    Calendar,
    CalendarWindows,
    LandmarkWindows,
    SlideByTupleWindows,
    SlidingWindows,
)
from upstream.operators.windows.parse import (
    Lateness,
    Windower,
    landmark_by_rows,
    landmark_by_time,
    slide_by_tuple,
    window_by_rows,
    window_by_time,
    windower_for,
    windows_asked,
    windows_of_groups,
)

MINUTE = 60_000_000
DAY = 86_400_000_000
PARIS = Calendar("Europe/Paris", "day")
PARIS_MONTHS = Calendar("Europe/Paris", "month")


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (window_by_time("10 minutes", "1 second"), SlidingWindows(10 * MINUTE, 1_000_000)),
        (window_by_time("10 minutes"), SlidingWindows(10 * MINUTE, 10 * MINUTE)),
        (window_by_time("1h 30m", "1 day"), SlidingWindows(90 * MINUTE, DAY)),
        (window_by_time("1 m", origin="1970-01-01T00:00:10Z"), SlidingWindows(MINUTE, MINUTE, 10_000_000)),
        (window_by_time("1 m", origin="1970-01-01T02:00+02:00"), SlidingWindows(MINUTE, MINUTE)),
        (
            window_by_time("1 m", origin=dt.datetime.fromtimestamp(-60, dt.timezone.utc)),
            SlidingWindows(MINUTE, MINUTE, -MINUTE),
        ),
        (window_by_time("1 day", zone="Europe/Paris"), CalendarWindows(PARIS, SlidingWindows(1, 1))),
        (window_by_time("1 week", zone="Europe/Paris"), CalendarWindows(PARIS, SlidingWindows(7, 7, -3))),
        (window_by_time("7 days", "1 day", zone="Europe/Paris"), CalendarWindows(PARIS, SlidingWindows(7, 1))),
        (
            window_by_time("1 year", "1 Month", zone="Europe/Paris"),
            CalendarWindows(PARIS_MONTHS, SlidingWindows(12, 1)),
        ),
        (window_by_time("2 quarters", zone="Europe/Paris"), CalendarWindows(PARIS_MONTHS, SlidingWindows(6, 6))),
        (
            window_by_time("1 year", zone="Europe/Paris", origin="2023-04-01"),
            CalendarWindows(PARIS_MONTHS, SlidingWindows(12, 12, 53 * 12 + 3)),
        ),
        (
            window_by_time("2 weeks", zone="Europe/Paris", origin=dt.date(1970, 1, 2)),
            CalendarWindows(PARIS, SlidingWindows(14, 14, 1)),
        ),
        (landmark_by_time("1 minute"), LandmarkWindows(MINUTE)),
        (landmark_by_time("1 month", zone="Europe/Paris"), CalendarWindows(PARIS_MONTHS, LandmarkWindows(1))),
        (window_by_rows("100 rows", "10 rows"), SlidingWindows(100, 10, attribute="row number")),
        (window_by_rows(100), SlidingWindows(100, 100, attribute="row number")),
        (window_by_rows("100", 1, partitioned=True), SlidingWindows(100, 1, attribute="rank")),
        (landmark_by_rows("1 row"), LandmarkWindows(1, attribute="row number")),
        (slide_by_tuple("5 minutes"), SlideByTupleWindows(5 * MINUTE)),
        (slide_by_tuple("5 minutes", "5 rows", order="time"), SlideByTupleWindows(5 * MINUTE, 5, "time")),
    ],
)
def test_it_is_the_window_that_is_written(got, wanted):
    assert got == wanted


def test_weeks_begin_on_monday():
    weeks = window_by_time("1 week", zone="America/New_York")
    low, _ = weeks.extent(np.arange(-3000, 3000, 7))
    assert {(dt.date(1970, 1, 1) + dt.timedelta(days=int(n))).weekday() for n in weeks.calendar.periods(low)} == {0}


ROWS_OF_ALL = {"of": "stream"}
BY_ARRIVAL = {"order": "arrival"}


@pytest.mark.parametrize(
    ("asked", "counting", "wanted", "of_rows"),
    [
        (("9 rows", "3 rows"), {}, SlidingWindows(9, 3, attribute="rank"), True),
        (("9 rows", "3 rows"), BY_ARRIVAL, SlidingWindows(9, 3, attribute="rank"), True),
        (("9 rows", "3 rows"), ROWS_OF_ALL, SlidingWindows(9, 3, attribute="row number"), True),
        (("all", "3 rows"), {**ROWS_OF_ALL, **BY_ARRIVAL}, LandmarkWindows(3, attribute="row number"), True),
        (("5 minutes", "3 rows"), {}, SlideByTupleWindows(5 * MINUTE, 3, "time"), False),
        (("5 minutes", "3 rows"), {"order": "time"}, SlideByTupleWindows(5 * MINUTE, 3, "time"), False),
        (("5 minutes", "3 rows"), BY_ARRIVAL, SlideByTupleWindows(5 * MINUTE, 3, "arrival"), False),
        (("5 minutes", "1 row"), BY_ARRIVAL, SlideByTupleWindows(5 * MINUTE, 1, "time"), False),
    ],
)
def test_which_rows_are_counted_and_in_which_order(asked, counting, wanted, of_rows):
    assert windows_asked(Windower(*asked, **counting)) == (wanted, of_rows)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Windower("5 s", of="all"), "of='all'. Expected: one of key, stream"),
        (lambda: Windower("5 s", "2 rows", order="rank"), "order='rank'. Expected: one of time, arrival"),
        (lambda: Windower("1 day", zone=5), "zone=5"),
        (lambda: windower_for(Windower("1 day"), None, "UTC"), "zone='UTC' beside it"),
        (lambda: Lateness(5), "lateness=5"),
        (lambda: Lateness(dead_letters="late"), "dead_letters='late'"),
        (lambda: windows_of_groups(Windower("5 s", method="wid")), "method='wid'"),
        (lambda: windows_asked(Windower("5 s", of="stream")), "of='stream' with windows by time"),
        (lambda: windows_asked(Windower("5 rows", order="time")), "order='time' with windows of rows"),
        (lambda: windows_asked(Windower("all", "2 s", order="arrival")), "order='arrival' with windows that count"),
        (lambda: windows_asked(Windower("5 s", order="time")), "order='time' with windows that count no rows"),
        (lambda: window_by_time("ten minutes"), r"RANGE is 'ten minutes', which is not a duration.*'10 minutes'"),
        (lambda: window_by_time(10), "RANGE is 10, which is not a duration.*window_by_rows"),
        (lambda: window_by_time("10 rows"), "RANGE is '10 rows', which is not a duration.*window_by_rows"),
        (lambda: window_by_time("-10 minutes"), "RANGE is '-10 minutes'"),
        (lambda: window_by_time("0 s"), "RANGE is '0 s'.*at least 1 microsecond"),
        (lambda: window_by_time("1 s", "0 s"), "SLIDE is '0 s'.*at least 1 microsecond"),
        (lambda: window_by_time("1 s", "0.1 us"), "SLIDE is '0.1 us'.*at least 1 microsecond"),
        (lambda: window_by_time("1 month"), "no zone is given.*give zone"),
        (lambda: window_by_time("1 week"), "no zone is given.*'7 days'"),
        (lambda: window_by_time("1 s", "1 year"), "SLIDE is '1 year', and no zone"),
        (lambda: window_by_time("1 hour", zone="UTC"), "RANGE is '1 hour', and a zone is given.*leave out zone"),
        (lambda: window_by_time("1.5 days", zone="UTC"), "whole number of days"),
        (lambda: window_by_time("1 day", "1 hour", zone="UTC"), "SLIDE is '1 hour', and a zone"),
        (lambda: window_by_time("1 month", "1 day", zone="UTC"), "a month is not a whole number of days.*both in days"),
        (lambda: window_by_time("0 days", zone="UTC"), "RANGE is '0 days'.*at least 1 day"),
        (lambda: window_by_time("1 m", origin="2024-01-01"), "not one instant.*offset"),
        (lambda: window_by_time("1 m", origin=dt.datetime(2024, 1, 1)), "not one instant"),
        (lambda: window_by_time("1 m", origin="yesterday"), "origin is 'yesterday'"),
        (lambda: window_by_time("1 day", zone="UTC", origin="2024-01-01T00:00Z"), "expected: a date|Expected: a date"),
        (lambda: window_by_time("1 day", zone="UTC", origin=dt.datetime(2024, 1, 1)), "Expected: a date"),
        (lambda: window_by_time("1 month", zone="UTC", origin="2024-01-02"), "the first of a month"),
        (lambda: landmark_by_time("0 s"), "SLIDE is '0 s'"),
        (lambda: window_by_rows(0), "RANGE is 0.*positive number of rows"),
        (lambda: window_by_rows(5, -1), "SLIDE is -1"),
        (lambda: window_by_rows("5 minutes"), "RANGE is '5 minutes'.*window_by_time"),
        (lambda: window_by_rows(2.5), "RANGE is 2.5"),
        (lambda: window_by_rows(True), "RANGE is True"),
        (lambda: window_by_rows(5, "0 rows"), "SLIDE is '0 rows'"),
        (lambda: slide_by_tuple("5 rows"), "not a duration"),
        (lambda: slide_by_tuple("5 s", 0), "SLIDE is 0"),
        (lambda: slide_by_tuple("5 s", order="rank"), "order is 'rank'.*'arrival' or 'time'"),
    ],
)
def test_what_is_no_window_is_reported_with_what_to_write(make, problem):
    with pytest.raises(OptionError, match=problem):
        make()
