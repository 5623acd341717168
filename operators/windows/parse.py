"""Window specifications as users write them: ``"10 minutes"``, ``"1 month"`` in a zone, ``"100 rows"``."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from typing import Literal, NoReturn

from ...conf.errors import OptionError
from ...conf.options import duration_argument, flag_argument, text_argument, word_argument
from ...conf.units import parse_duration_us
from .kinds import Calendar, CalendarWindows, LandmarkWindows, SlideByTupleWindows, SlidingWindows
from .sessions import SessionWindows

RowsOf = Literal["key", "stream"]
"""The rows that windows of rows count: those of each key by itself, or those of the whole stream."""

RowOrder = Literal["time", "arrival"]
"""The order in which rows are counted, where every n-th row ends a window by time."""

WindowMethod = Literal["auto", "wid", "paned", "adaptive", "buffering"]
"""The methods of computing windows, with the same results; ``auto`` chooses one by the aggregates."""


@dataclasses.dataclass(frozen=True)
class Windower:
    """The windows of a stream, with settings that few jobs need: for :meth:`~upstream.UpdateStream.window`, in place
    of a duration.

    Parameters
    ----------
    duration
        RANGE, the length of a window: ``10 minutes``; with `zone` also ``1 day``, ``1 month``. ``all`` for everything
        so far, every `slide` (landmark windows). ``100 rows`` for the last rows of each key, or of the whole stream, in
        the order of arrival. Such windows close with their last row. Their `window_start`, `window_end` and
        `window_time` are row numbers, counted from 0.
    slide
        SLIDE, the distance between windows [default: `duration`, windows that tumble]. ``1 row`` for a window by time
        that ends with each row, ``10 rows`` for one that ends with every tenth row of its key.
    zone
        The time zone whose calendar the windows follow, such as ``Europe/Paris``: days from midnight to midnight, weeks
        from Monday, months, quarters, and years.
    origin
        The instant from which windows are counted, such as ``2024-01-01T00:00:00Z`` [default: the epoch]. With `zone`,
        a date.
    of
        For windows of rows: count the rows of each ``key``, or group of `by`, alone; or of all keys together
        (``stream``), in one task.
    order
        For windows by time that end with every n-th row: count rows in the order of ``time`` [default] or ``arrival``.
    method
        The method of computing windows, with the same results: see `docs/windows.md`.

    Examples
    --------
    >>> days = us.Windower("1 day", zone="Europe/Paris")
    >>> last = us.Windower("1000 rows", slide="100 rows", of="stream")
    >>> counts = stream.window(last).agg(rows=us.count())
    """

    duration: str | int
    slide: str | None = None
    _: dataclasses.KW_ONLY
    zone: str | None = None
    origin: str | dt.datetime | dt.date | None = None
    of: RowsOf = "key"
    order: RowOrder | None = None
    method: WindowMethod = "auto"

    def __post_init__(self) -> None:
        word_argument("of", self.of, RowsOf)
        if self.order is not None:
            word_argument("order", self.order, RowOrder)
        word_argument("method", self.method, WindowMethod)
        text_argument("zone", self.zone)


def windower_for(duration: object, slide: str | None, zone: str | None) -> Windower:
    """Return the windows of a step for its arguments; refuse a windower with a slide or a zone beside it."""
    if not isinstance(duration, Windower):
        return Windower(duration, slide, zone=zone)  # pyright: ignore[reportArgumentType] whatever was given
    if slide is not None or zone is not None:
        raise OptionError(
            f"us.Windower(…) with slide={slide!r} and zone={zone!r} beside it",
            expected="both in us.Windower(…)",
            hint="move them there",
        )
    return duration


@dataclasses.dataclass(frozen=True)
class Lateness:
    """The treatment of late rows: the argument `lateness` of windows.

    Rows that are later than allowed are counted. If the duration is all that you set, give it alone:
    ``lateness="5 minutes"``.

    Parameters
    ----------
    allowed
        The time after a window's end in which late rows still count. Its result is then emitted again.
    dead_letters
        Write copies of later rows to the dead-letter table.

    Raises
    ------
    OptionError
        `allowed` is not a duration, or `dead_letters` is not a boolean.

    Examples
    --------
    >>> lateness = us.Lateness("5 minutes", dead_letters=True)
    >>> means = stream.window("15 minutes", lateness=lateness).agg(speed=us.avg("speed"))
    """

    allowed: str = "0 seconds"
    _: dataclasses.KW_ONLY
    dead_letters: bool = False

    def __post_init__(self) -> None:
        duration_argument("lateness", self.allowed)
        flag_argument("dead_letters", self.dead_letters)

    @property
    def allowed_us(self) -> int:
        return duration_argument("lateness", self.allowed)


def lateness_for(lateness: object) -> Lateness:
    """Return the treatment of late rows for the argument of a step."""
    return lateness if isinstance(lateness, Lateness) else Lateness(lateness)  # pyright: ignore[reportArgumentType]


_PERIOD = re.compile(r"\s*([0-9]+)\s*(d|day|w|week|month|quarter|y|year)s?\s*", re.IGNORECASE)
_PERIODS: dict[str, tuple[Literal["day", "month"], int]] = {
    "d": ("day", 1), "day": ("day", 1), "w": ("day", 7), "week": ("day", 7),
    "month": ("month", 1), "quarter": ("month", 3), "y": ("month", 12), "year": ("month", 12),
}  # fmt: skip
_MONDAY = -3  # 1969-12-29, in days since the epoch
_ROWS = re.compile(r"\s*([0-9]+)\s*(?:rows?)?\s*")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def window_by_time(
    range_: str, slide: str | None = None, *, origin: str | dt.datetime | dt.date | None = None, zone: str | None = None
) -> SlidingWindows | CalendarWindows:
    """Return sliding or tumbling windows by time; without `slide` they tumble.

    Without a zone, all durations are fixed: a day is 24 hours. The origin is an instant with its offset from UTC, the
    epoch by default. Window 0 begins there if it tumbles, else SLIDEs are counted from there.

    With a zone, such as ``"Europe/Paris"``, windows are the calendar's: days from midnight to midnight, weeks from
    Monday, months, quarters and years. RANGE and SLIDE are both days or weeks, or both months or longer. The origin is
    a date, the first of a month for months and longer.
    """
    if zone is None:
        length = _duration("RANGE", range_)
        return SlidingWindows(length, length if slide is None else _duration("SLIDE", slide), _instant(origin))
    unit, length, _ = _periods("RANGE", range_)
    slide_unit, step, weeks = _periods("SLIDE", range_ if slide is None else slide)
    if slide_unit != unit:
        raise OptionError(
            f"RANGE is {range_!r} and SLIDE is {slide!r}: a month is not a whole number of days",
            expected="both in days or weeks, or both in months, quarters or years",
        )
    return CalendarWindows(Calendar(zone, unit), SlidingWindows(length, step, _first_period(origin, unit, weeks=weeks)))


def landmark_by_time(
    slide: str, *, origin: str | dt.datetime | dt.date | None = None, zone: str | None = None
) -> LandmarkWindows | CalendarWindows:
    """Return windows from the beginning of the stream to every SLIDE; else as :func:`window_by_time`."""
    if zone is None:
        return LandmarkWindows(_duration("SLIDE", slide), _instant(origin))
    unit, step, weeks = _periods("SLIDE", slide)
    return CalendarWindows(Calendar(zone, unit), LandmarkWindows(step, _first_period(origin, unit, weeks=weeks)))


def window_by_rows(range_: str | int, slide: str | int | None = None, *, partitioned: bool = False) -> SlidingWindows:
    """Return sliding or tumbling windows of a number of rows, such as ``"100 rows"`` or ``100``.

    If `partitioned`, rows are counted separately in each partition: the last 100 rows of each sensor, not each sensor's
    among the last 100 rows.
    """
    length = _rows("RANGE", range_)
    step = length if slide is None else _rows("SLIDE", slide)
    return SlidingWindows(length, step, attribute="rank" if partitioned else "row number")


def landmark_by_rows(slide: str | int, *, partitioned: bool = False) -> LandmarkWindows:
    """Return windows of all rows so far, one every so many rows."""
    return LandmarkWindows(_rows("SLIDE", slide), attribute="rank" if partitioned else "row number")


def slide_by_tuple(
    range_: str, every: str | int = 1, *, order: Literal["arrival", "time"] = "arrival"
) -> SlideByTupleWindows:
    """Return windows of the last RANGE before every row, or before every n-th, by arrival or by time."""
    if order not in ("arrival", "time"):
        raise OptionError(f"order is {order!r}", expected="'arrival' or 'time'")
    return SlideByTupleWindows(_duration("RANGE", range_), _rows("SLIDE", every), order)


def windows_asked(
    asked: Windower,
) -> tuple[SlidingWindows | LandmarkWindows | CalendarWindows | SlideByTupleWindows, bool]:
    """Return the windows of any kind for a range and a slide, and whether they are over rows as they arrive."""
    slide, origin, zone, of, order = asked.slide, asked.origin, asked.zone, asked.of, asked.order
    range_: str = asked.duration  # pyright: ignore[reportAssignmentType] a number is refused below
    rows, landmark, slides_by_row = "row" in str(range_), str(range_).strip().lower() == "all", "row" in str(slide)
    _check_counting(of, order, of_rows=rows or (landmark and slides_by_row), slides_by_row=slides_by_row)
    if rows:
        return window_by_rows(range_, slide, partitioned=of == "key"), True
    if landmark and slides_by_row:
        return landmark_by_rows(str(slide), partitioned=of == "key"), True
    if landmark:
        if slide is None:
            raise OptionError(
                "duration='all' without a slide", expected="slide='1 hour', or how often a result is wanted"
            )
        return landmark_by_time(slide, origin=origin, zone=zone), False
    if slides_by_row:
        found = slide_by_tuple(range_, str(slide), order=order or "time")
        # Where every row ends a window, the order in which they are counted makes no difference.
        return (dataclasses.replace(found, order="time") if found.every == 1 else found), False
    return window_by_time(range_, slide, origin=origin, zone=zone), False


def sessions_asked(gap: str) -> SessionWindows:
    """Return the session windows of a gap."""
    gap_us = duration_argument("gap", gap)
    if gap_us <= 0:
        raise OptionError(f"gap={gap!r}", expected="at least 1 microsecond, such as '5 minutes'")
    return SessionWindows(gap_us)


def windows_of_groups(asked: Windower) -> SlidingWindows | CalendarWindows:
    """Return windows over rows that may be retracted, as :func:`windows_asked`; refuse those without an end."""
    if asked.method != "auto":
        raise OptionError(
            f"group_by(…).window(us.Windower(…, method={asked.method!r}))",
            expected="no method: groups keep the newest row of each key",
            hint="leave method out",
        )
    windows, by_rows = windows_asked(asked)
    over = windows.over if isinstance(windows, CalendarWindows) else windows
    if by_rows or not isinstance(windows, SlidingWindows | CalendarWindows) or not isinstance(over, SlidingWindows):
        raise OptionError(
            f"group_by(…).window({asked.duration!r}, slide={asked.slide!r})",
            expected="sliding or tumbling windows by time, such as '10 minutes': a retracted row would change any "
            "number of landmark windows and windows of rows",
            hint="give a duration, and a slide that is one too",
        )
    return windows


def _check_counting(of: RowsOf, order: RowOrder | None, *, of_rows: bool, slides_by_row: bool) -> None:
    if of == "stream" and not of_rows:
        raise OptionError(
            "of='stream' with windows by time",
            expected="windows of rows, such as us.Windower('1000 rows', '100 rows', of='stream')",
            hint="leave it out: windows by time have the same ends for all keys",
        )
    if order == "time" and of_rows:
        raise OptionError(
            "order='time' with windows of rows",
            expected="order='arrival', or no order: windows of rows count rows as they arrive",
        )
    if order is not None and not of_rows and not slides_by_row:
        raise OptionError(
            f"order={order!r} with windows that count no rows",
            expected="a slide of rows, such as us.Windower('5 minutes', '10 rows', order='arrival')",
            hint="leave it out",
        )


def _duration(name: str, text: object) -> int:
    if not isinstance(text, str):
        _not_a_duration(name, text)
    period = _PERIOD.fullmatch(text)
    if period is not None and period.group(2).lower() not in ("d", "day"):
        raise OptionError(
            f"{name} is {text!r}, and no zone is given",
            expected="a fixed duration such as '10 minutes' or '7 days'",
            hint="give zone, for example zone='UTC' or zone='Europe/Paris', for the calendar's weeks, months and years",
        )
    try:
        duration_us = parse_duration_us(text)
    except ValueError as error:
        _not_a_duration(name, text, error)
    if duration_us <= 0:
        raise OptionError(f"{name} is {text!r}", expected="at least 1 microsecond")
    return duration_us


def _not_a_duration(name: str, got: object, cause: Exception | None = None) -> NoReturn:
    raise OptionError(
        f"{name} is {got!r}, which is not a duration",
        expected="a positive number and a unit, such as '10 minutes', '1h 30m' or '250 ms'",
        hint="windows of rows are made by window_by_rows",
    ) from cause


def _periods(name: str, text: object) -> tuple[Literal["day", "month"], int, bool]:
    """Return the calendar's unit, the number of units, and whether they were given in weeks."""
    match = _PERIOD.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise OptionError(
            f"{name} is {text!r}, and a zone is given",
            expected="a whole number of days, weeks, months, quarters or years, such as '1 day' or '3 months'",
            hint="leave out zone for windows of a fixed duration; origin aligns them",
        )
    unit, of_unit = _PERIODS[match.group(2).lower()]
    count = int(match.group(1)) * of_unit
    if count == 0:
        raise OptionError(f"{name} is {text!r}", expected=f"at least 1 {unit}")
    return unit, count, of_unit == 7


def _rows(name: str, value: object) -> int:
    match = _ROWS.fullmatch(value) if isinstance(value, str) else None
    count = int(match.group(1)) if match is not None else value
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise OptionError(
            f"{name} is {value!r}", expected="a positive number of rows, such as 100 or '100 rows'",
            hint="windows of time are made by window_by_time",
        )  # fmt: skip
    return count


def _instant(origin: object) -> int:
    found = origin
    if origin is None:
        return 0
    if isinstance(origin, str):
        try:
            found = dt.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", origin.strip()))
        except ValueError:
            found = None
    if not isinstance(found, dt.datetime) or found.tzinfo is None:
        raise OptionError(
            f"origin is {origin!r}, which is not one instant",
            expected="an instant with its offset, such as '2024-01-01T00:00:00Z' or '2024-01-01T06:00:00+02:00'",
            hint="a date is an origin where a zone is given",
        )
    return (found - _EPOCH) // dt.timedelta(microseconds=1)


def _first_period(origin: object, unit: Literal["day", "month"], *, weeks: bool) -> int:
    found = origin
    if origin is None:
        return _MONDAY if weeks else 0
    if isinstance(origin, str):
        try:
            found = dt.date.fromisoformat(origin.strip())
        except ValueError:
            found = None
    if isinstance(found, dt.datetime) or not isinstance(found, dt.date) or (unit == "month" and found.day != 1):
        raise OptionError(
            f"origin is {origin!r}",
            expected="a date such as '2024-01-01'" + (", the first of a month" if unit == "month" else ""),
            hint="with a zone, windows begin at midnight there",
        )
    if unit == "month":
        return (found.year - 1970) * 12 + found.month - 1
    return found.toordinal() - dt.date(1970, 1, 1).toordinal()
