"""Window specifications as functions of numbers (Li's WID semantics, thesis ch. 5)."""

from __future__ import annotations

import abc
import dataclasses
import datetime as dt
import functools
import math
import zoneinfo
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError
from ...conf.units import length_text
from ...core.rows.event_times import zone_named
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Whole, affine, as_int64, fits, floor_div

Attribute = Literal["time", "row number", "rank"]
"""The meaning of x: event time, row number in the stream, or rank in the partition. The formulas are the same."""


_LENGTHS = ("range", "slide", "origin", "gap")


def _measured(length: int, period: str | None) -> str:
    return length_text(length) if period is None else f"{length} {period}{'' if abs(length) == 1 else 's'}"


class Windows(abc.ABC):
    """A window specification.

    A row with value x is in window w iff ``low <= x < high`` for ``low, high = extent(w)``, and iff ``first <= w <=
    last`` for ``first, last = wids(x)``. Since x alone decides, neither the order of arrival nor the batches matter.

    x is an int64: microseconds since the epoch, a row number from 0, or a rank in a partition. All functions take one
    number or an array. A result that does not fit 64 bits is an error, never another window.
    """

    word: ClassVar[str]

    def __str__(self) -> str:
        """Return the text to which a checkpoint is bound, whatever the class is named."""
        return self.text()

    def text(self, period: str | None = None) -> str:
        """Return the specification, whose lengths in time are durations, or else numbers of periods."""
        shown: list[str] = []
        for each in dataclasses.fields(self):  # pyright: ignore[reportArgumentType] each kind is a dataclass
            value = getattr(self, each.name)
            if value != each.default:
                measured = each.name in _LENGTHS and (period or getattr(self, "attribute", "time") == "time")
                shown.append(f"{each.name} {_measured(value, period) if measured else value}")
        return f"{self.word}({', '.join(shown)})"

    @abc.abstractmethod
    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the low (inclusive) and high (exclusive) ends of windows in x; LOWEST for one without a beginning."""

    @abc.abstractmethod
    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        """Return each row's first and last window-id: last < first between windows, HIGHEST for all later windows."""

    @abc.abstractmethod
    def last_complete(self, bound: Whole) -> Int64s:
        """Return the greatest window-id that is complete once every row with x < bound has arrived.

        It never decreases with the bound. Any int64 is a bound: LOWEST before any is known, HIGHEST if all rows have
        arrived.
        """

    def start_and_end(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the `window_start` and `window_end` of results, as the kind defines them."""
        return self.extent(w)

    def last_instant(self, w: Whole) -> Int64s:
        """Return the greatest x inside each window: the `window_time` of its result, and x for later windows."""
        return affine(self.extent(w)[1], 1, -1)


@dataclasses.dataclass(frozen=True)
class SlidingWindows(Windows):
    """Windows of a fixed RANGE, one every SLIDE (Eq. 5.2); tumbling if they are equal, with gaps if SLIDE is larger."""

    word = "sliding"

    range: int  # in units of x; it need not be a multiple of SLIDE
    slide: int  # in units of x
    origin: int = 0  # window 0 ends at ``origin + slide``; the paper's least x is known too late
    attribute: Attribute = "time"  # "rank" partitions windows by rows: a window is named by its id and its partition

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.slide)
        _check_origin(self.origin)

    @property
    def tumbling(self) -> bool:
        return self.range == self.slide

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        high = self.origin + self.slide
        return affine(w, self.slide, high - self.range), affine(w, self.slide, high)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        first = floor_div(x, self.slide, shift=-self.origin)
        if self.tumbling:
            return first, first
        return first, floor_div(x, self.slide, shift=self.range - self.origin, add=-1)

    def last_complete(self, bound: Whole) -> Int64s:
        return floor_div(bound, self.slide, shift=-self.origin, add=-1, saturate=True)

    @property
    def pane(self) -> int:
        """The largest length that divides both RANGE and SLIDE (thesis §6.2)."""
        return math.gcd(self.range, self.slide)

    def panes(self) -> SlidingWindows:
        """Return the panes as tumbling windows, with the panes' numbers as ids."""
        return SlidingWindows(self.pane, self.pane, self.origin, self.attribute)

    def pane_of(self, x: Whole) -> Int64s:
        """Return the pane of each row. A row between two windows has one too."""
        return self.panes().wids(x)[0]

    def panes_of(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last pane (both inclusive) of windows; together they are the extent."""
        first = (self.slide - self.range) // self.pane
        steps = self.slide // self.pane
        return affine(w, steps, first), affine(w, steps, steps - 1)


@dataclasses.dataclass(frozen=True)
class LandmarkWindows(Windows):
    """Windows from the beginning of the stream to every SLIDE: RANGE ALL (Eq. 5.8)."""

    word = "landmark"

    slide: int
    origin: int = 0
    attribute: Attribute = "time"

    def __post_init__(self) -> None:
        _check_length("SLIDE", self.slide)
        _check_origin(self.origin)

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        high = affine(w, self.slide, self.origin + self.slide)
        return np.full_like(high, LOWEST), high

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        first = floor_div(x, self.slide, shift=-self.origin)
        return first, np.full_like(first, HIGHEST)

    def last_complete(self, bound: Whole) -> Int64s:
        return floor_div(bound, self.slide, shift=-self.origin, add=-1, saturate=True)


@dataclasses.dataclass(frozen=True)
class SlideByTupleWindows(Windows):
    """Windows of the last RANGE before every n-th row, which opens the window (Eq. 5.10-5.18).

    A window's id is the time of its row, so the windows depend on the stream: :meth:`windows` returns those that some
    rows open. A row's windows are among the ids ``wids(x)``, which needs no other rows. Those that exist are known once
    the rows up to ``x + range`` are (the paper's forward context), and :meth:`among` finds them. Rows with equal times
    open one window.
    """

    word = "rows"

    range: int  # in units of x; the extent is ``w - range < x <= w``
    every: int = 1  # SLIDE in rows: the n-th, 2n-th, ... row opens a window
    # order in which rows are counted; ties in time are in the order of arrival
    order: Literal["arrival", "time"] = "arrival"

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.every)

    def windows(self, x: Whole, number: Whole) -> Int64s:
        """Return the ids of the windows that some rows open, increasing; `number` counts the rows from 0 by `order`."""
        numbers = as_int64(number)
        return np.unique(as_int64(x)[numbers % self.every == self.every - 1])

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        return affine(w, 1, 1 - self.range), affine(w, 1, 1)

    def start_and_end(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the window's beginning, which is outside it, and its end, the time of its row, which is inside."""
        return affine(w, 1, -self.range), as_int64(w)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last id that a window of each row may have. Only those in :meth:`windows` exist."""
        return as_int64(x), affine(x, 1, self.range - 1)

    def among(self, ids: Int64s, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last position in `ids` (increasing) of each row's windows; last < first if in none."""
        first, last = self.wids(x)
        return np.searchsorted(ids, first), np.searchsorted(ids, last, "right") - 1

    def last_complete(self, bound: Whole) -> Int64s:
        """Return the greatest id that a complete window can have: its row and all rows in it have arrived."""
        return floor_div(bound, 1, add=-1, saturate=True)


def _check_length(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= HIGHEST:
        raise OptionError(
            f"{name} is {value!r}", expected=f"a whole number from 1 to {HIGHEST}, in the windowing attribute's unit"
        )


def _check_origin(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not fits(value):
        raise OptionError(f"origin is {value!r}", expected=f"a whole number from {LOWEST} to {HIGHEST}")


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

    def __str__(self) -> str:
        return f"{self.unit} in {self.zone}"

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
        """Return the first instant of each period in µs. One that the zone skipped (2011-12-30 in Samoa) is empty."""
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

    word = "calendar"

    calendar: Calendar
    over: SlidingWindows | LandmarkWindows  # the windows, with RANGE, SLIDE and origin in periods

    def __str__(self) -> str:
        return f"{self.word}({self.calendar}, over {self.over.text(self.calendar.unit)})"

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
