"""Windows of days, weeks, months and years in a time zone, whatever their length there."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import zoneinfo
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s, Whole, as_int64
from ...core.rows.time_zones import zone_named
from .kinds import LandmarkWindows, SlidingWindows, Windows

__all__ = ["Calendar", "CalendarWindows"]

_DAY_US = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 differences of local times, which have no zone
_SECOND = dt.timedelta(seconds=1)
_MICROSECOND = dt.timedelta(microseconds=1)

# The calendar repeats every 400 years, weekdays included. Zones do, too, where they have come to their last rule, and
# before their first, when they kept the sun's time.
_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097
_FIRST_RULES = 1600
_LAST_RULES = 2400

_LEAST_YEAR = -290_000
_GREATEST_YEAR = 294_000


@dataclasses.dataclass(frozen=True)
class Calendar:
    """The days or months of a time zone, numbered; number 0 is that of 1970-01-01.

    A period begins at the first instant whose local date is the period's first day or later. The rules come from
    `zoneinfo`, once per year that occurs, because it alone follows a zone's last rule forever. Arrow, which converts
    whole columns, stops changing clocks in 2037, and Polars in 2099.
    """

    zone: str  # an IANA name, such as ``Europe/Paris`` or ``UTC``
    unit: Literal["day", "month"]  # a week is seven days, a year twelve months

    def __post_init__(self) -> None:
        zone_named(self.zone)

    def periods(self, x: Whole) -> Int64s:
        """Return the number of each instant's period; instants are microseconds since the epoch."""
        instants = as_int64(x)
        if not instants.size:
            return instants
        years = _years(instants)
        _check_years(years)
        # An instant's local year is its year in UTC or one beside it.
        numbers, beginnings = self._tables(years, beside=1)
        return numbers[np.searchsorted(beginnings, instants, "right") - 1]

    def beginnings(self, number: Whole) -> Int64s:
        """Return the first instant of each period, in microseconds since the epoch. It is the end of the period before.

        A period that the zone skipped (2011-12-30 in Samoa) begins with the next one, so it is empty.
        """
        wanted = as_int64(number)
        if not wanted.size:
            return wanted
        limit = 400_000 * 366  # as dates, numbers beyond would not fit
        clipped = np.clip(wanted, -limit, limit)
        years = clipped.astype("M8[D]" if self.unit == "day" else "M8[M]").astype("M8[Y]").astype(np.int64) + 1970
        _check_years(years)
        numbers, beginnings = self._tables(years, beside=0)
        return beginnings[np.searchsorted(numbers, wanted)]

    def _tables(self, years: Int64s, *, beside: int) -> tuple[Int64s, Int64s]:
        least = int(years.min()) - beside
        occurs = np.zeros(int(years.max()) + beside - least + 1, dtype=np.bool_)
        for step in range(-beside, beside + 1):
            occurs[years + (step - least)] = True
        parts = [_year(self.zone, self.unit, least + int(each)) for each in np.flatnonzero(occurs)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


@dataclasses.dataclass(frozen=True)
class CalendarWindows(Windows):
    """Windows over the periods of a calendar; rows and bounds are instants, in microseconds since the epoch."""

    calendar: Calendar
    over: SlidingWindows | LandmarkWindows  # the windows, with RANGE, SLIDE and origin in periods

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        low, high = self.over.extent(w)
        if isinstance(self.over, LandmarkWindows):
            return low, self.calendar.beginnings(high)
        return self.calendar.beginnings(low), self.calendar.beginnings(high)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        return self.over.wids(self.calendar.periods(x))

    def last_complete(self, bound: Whole) -> Int64s:
        # No row lies outside these years, so bounds there say nothing more than their ends.
        inside = np.clip(as_int64(bound), _instant(_LEAST_YEAR), _instant(_GREATEST_YEAR + 1) - 1)
        return self.over.last_complete(self.calendar.periods(inside))

    def panes(self) -> CalendarWindows:
        return CalendarWindows(self.calendar, self._sliding().panes())

    def pane_of(self, x: Whole) -> Int64s:
        return self._sliding().pane_of(self.calendar.periods(x))

    def panes_of(self, w: Whole) -> tuple[Int64s, Int64s]:
        return self._sliding().panes_of(w)

    def _sliding(self) -> SlidingWindows:
        if isinstance(self.over, LandmarkWindows):
            raise OptionError("landmark windows have no panes", expected="sliding or tumbling windows")
        return self.over


def _years(instants: Int64s) -> Int64s:
    days = instants // _DAY_US  # in days LOWEST is a date, not NumPy's "no time"
    return days.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970


def _instant(year: int) -> int:
    return int(np.datetime64(year - 1970, "Y").astype("M8[D]").astype(np.int64)) * _DAY_US


def _check_years(years: npt.NDArray[np.int64]) -> None:
    least, greatest = int(years.min()), int(years.max())
    if least < _LEAST_YEAR or greatest > _GREATEST_YEAR:
        raise OptionError(
            f"a calendar window in the year {greatest if greatest > _GREATEST_YEAR else least}",
            expected=f"years from {_LEAST_YEAR} to {_GREATEST_YEAR}",
            hint="times that far out are mostly placeholders: filter them out before the window",
        )


@functools.lru_cache(maxsize=4096)
def _year(zone: str, unit: Literal["day", "month"], year: int) -> tuple[Int64s, Int64s]:
    """Return the numbers and beginnings of the periods of one year."""
    cycles = 0
    if year >= _LAST_RULES + _CYCLE_YEARS:
        cycles = (year - _LAST_RULES) // _CYCLE_YEARS
    elif year < _FIRST_RULES - _CYCLE_YEARS:
        cycles = (year - (_FIRST_RULES - _CYCLE_YEARS)) // _CYCLE_YEARS
    like = year - cycles * _CYCLE_YEARS
    first = dt.datetime(like, 1, 1)  # noqa: DTZ001 a local time
    if unit == "day":
        days = (dt.datetime(like + 1, 1, 1) - first).days  # noqa: DTZ001 a local time
        local = [first + dt.timedelta(days=day) for day in range(days)]
        number = (first - _EPOCH).days + cycles * _CYCLE_DAYS
    else:
        local = [first.replace(month=month) for month in range(1, 13)]
        number = (year - 1970) * 12
    rules = zone_named(zone)
    shift = cycles * _CYCLE_DAYS * _DAY_US
    beginnings = np.array([_first_instant(each, rules) + shift for each in local], dtype=np.int64)
    return np.arange(number, number + len(local)), beginnings


def _first_instant(local: dt.datetime, zone: zoneinfo.ZoneInfo) -> int:
    """Return the first instant at which local clocks show this time or a later one."""
    before, after = (local.replace(tzinfo=zone, fold=fold).utcoffset() or dt.timedelta(0) for fold in (0, 1))
    if before >= after:  # an ordinary time, or one that clocks show twice: the first time
        return (local - before - _EPOCH) // _MICROSECOND
    # Clocks skip it. The instant of the change is the first after `early` at which the later offset holds.
    early, late = local - after, local - before
    while late - early > _SECOND:
        middle = early + (late - early) // 2 // _SECOND * _SECOND
        changed = middle.replace(tzinfo=dt.timezone.utc).astimezone(zone).utcoffset() == after
        early, late = (early, middle) if changed else (middle, late)
    return (late - _EPOCH) // _MICROSECOND
