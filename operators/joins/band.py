"""The times that meet in a join, and until when rows are kept for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...conf.errors import OptionError, SchemaError, StateLimitError
from ...conf.options import duration_argument
from ...core.rows.event_times import EPOCH_UNITS, check_time_type
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
"""The sides' names in states and errors, which also begin those of their input partitions: ``left/partition``."""


class JoinTimeRange(Protocol):
    """The times of the two sides that meet, as pure arithmetic on int64 times of any unit.

    A bound of a side is inclusive for its later rows: each has this time or a later one.
    """

    @property
    def segment(self) -> int:
        """The length of the segments of time in which rows are kept."""
        ...

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        """Return the least and the greatest time of the other side that meets each time of a side, both inclusive."""
        ...

    def kept_from(self, side: int, bound: int) -> int:
        """Return the least time of a side that can still meet a later row, given the bound of the other side."""
        ...

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        """Return :meth:`kept_from` of each of several bounds."""
        ...


@dataclasses.dataclass(frozen=True)
class IntervalBand:
    """Rows meet if ``-before <= right - left <= after``; one of the two may be negative."""

    before: int
    after: int

    @property
    def segment(self) -> int:
        return max(1, (self.before + self.after + 1) // 4)

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        before, after = (self.before, self.after) if side == LEFT else (self.after, self.before)
        return shifted(times, -before), shifted(times, after)

    def kept_from(self, side: int, bound: int) -> int:
        return shifted_bound(bound, -(self.after if side == LEFT else self.before))

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        found = shifted(bounds, -(self.after if side == LEFT else self.before))
        finite = (bounds != BEFORE_ALL) & (bounds != AFTER_ALL)
        return np.where(finite, np.clip(found, BEFORE_ALL + 1, AFTER_ALL - 1), bounds)


@dataclasses.dataclass(frozen=True)
class TumblingBand:
    """Rows meet if they are in one window of a length."""

    size: int

    @property
    def segment(self) -> int:
        return self.size

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        del side
        first = shifted(times, 0) // self.size
        least = np.where(first * self.size > times, LOWEST, first * self.size)  # wrapped below the least int64
        return least, shifted(least, self.size - 1)

    def kept_from(self, side: int, bound: int) -> int:
        del side
        if bound in (BEFORE_ALL, AFTER_ALL):
            return bound
        return max(bound // self.size * self.size, LOWEST)

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        return np.where(bounds == AFTER_ALL, bounds, self.partners(side, bounds)[0])


def reach_back(band: JoinTimeRange) -> float:
    """Return how far a row looks back on the other side, averaged over both sides: half of the band's width."""
    least, greatest = band.partners(LEFT, np.zeros(1, dtype=np.int64))
    return (int(greatest[0]) - int(least[0])) / 2


def shifted(times: Int64s, by: int) -> Int64s:
    """Return times moved by a distance, at most to the ends of int64."""
    if by >= 0:
        return np.where(times > HIGHEST - by, HIGHEST, times + np.int64(by))
    return np.where(times < LOWEST - by, LOWEST, times + np.int64(by))


def shifted_bound(bound: int, by: int) -> int:
    """Return a bound moved by a distance. The two infinities stay."""
    if bound in (BEFORE_ALL, AFTER_ALL):
        return bound
    return min(max(bound + by, BEFORE_ALL + 1), AFTER_ALL - 1)


STANDS_STILL = (
    "or drop rows with on_limit='drop_oldest'; a stream whose watermark does not advance makes the join keep all rows "
    "of the other one"
)
"""The remedy for a join by time that exceeds its limit."""


def cut_time(sides: Sequence[tuple[Int64s, int]], segment: int, least: int) -> int:
    """Return a time such that the rows before it have about `least` bytes or more.

    `sides` has the times of each side's rows and their bytes; there must be a row. The time is the end of a segment,
    unless no row would be left.
    """
    times = np.concatenate([times for times, _ in sides])
    each = np.concatenate([np.full(len(times), size / max(len(times), 1)) for times, size in sides])
    order = np.argsort(times, kind="stable")
    last = min(int(np.searchsorted(np.cumsum(each[order]), least)), len(times) - 1)
    time = int(times[order[last]])
    whole = (time // segment + 1) * segment
    return whole if whole <= int(times[order[-1]]) else time + 1


def over_limit(shard: int, size: int, on: Sequence[str], state_limit: int, parts: int, hint: str) -> StateLimitError:
    """Return the error of a shard that keeps more bytes than its part of the limit; `hint` adds a remedy."""
    part = state_limit // parts
    return StateLimitError(
        f"shard {shard} of the join on {', '.join(on)} keeps {size:,} bytes",
        expected=f"at most {part:,}, which is its part of state_limit={state_limit} among {parts} shards",
        hint=f"raise state_limit, which may change from run to run; {hint}",
    )


_DAY_US = 86_400_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """The time between two rows that meet: the argument `within` of :meth:`~upstream.UpdateStream.join`.

    If it is the same in both directions, give it alone: ``within="2 minutes"``.

    Parameters
    ----------
    before
        The most by which the row of the right may be earlier than that of the left. It is a duration, or a whole
        number in the unit of the time column.
    after
        The most by which it may be later. ``Interval(before="-1 minute", after="5 minutes")`` is from one
        minute to five minutes later.

    Examples
    --------
    >>> us.Interval(before="2 minutes", after="3 minutes")
    Interval(before='2 minutes', after='3 minutes')
    """

    before: str | int = "0 s"
    after: str | int = "0 s"


def unit_of(name: str, kind: pa.DataType, time_format: str | None) -> int | None:
    """Return the microseconds of one unit of a time column; None for numbers without a format, and for nanoseconds."""
    if pa.types.is_timestamp(kind):
        return 1
    if pa.types.is_date(kind):
        return _DAY_US
    if not pa.types.is_integer(kind):
        raise SchemaError(
            f"a join by the time {name!r}, which is of type {kind}",
            expected="a timestamp, a date or whole numbers",
            hint="compute such a column where the rows are read, and name it as the event time",
        )
    if time_format is None:
        return None
    check_time_type(name, kind, time_format, "time_format")
    per_second = EPOCH_UNITS[time_format]
    return None if per_second > 1_000_000 else 1_000_000 // per_second


def band_of(within: Any, unit_us: int | None) -> JoinTimeRange:
    """Return the band of an interval, or of one distance in both directions, in units of the time column."""
    if isinstance(within, Interval):
        before, after = distance_of("before", within.before, unit_us), distance_of("after", within.after, unit_us)
    elif isinstance(within, str | int) and not isinstance(within, bool):
        before = after = distance_of("within", within, unit_us)
    else:
        raise OptionError(
            "a join without a bound in time" if within is None else f"within={within!r}",
            expected="within='2 minutes', us.Interval(before=…, after=…), or us.Windower('1 minute')",
            hint="set how far apart in time matching rows may be: without a bound, the join keeps all rows for ever",
        )
    if before + after < 0:
        raise OptionError(
            f"within={within!r}: no time is that far before and that far after",
            expected="before and after whose sum is not negative",
            hint="a negative `before` means later: Interval(before='-1 minute', after='5 minutes') is one to five "
            "minutes later",
        )
    return IntervalBand(before, after)


def tumbling_band(length: Any, unit_us: int | None) -> TumblingBand:
    """Return the band of windows of a length, in units of the time column."""
    size = distance_of("duration", length, unit_us)
    if size < 1:
        raise OptionError(
            f"within=us.Windower({length!r})",
            expected="at least one unit of the time column",
            hint="take a longer window",
        )
    return TumblingBand(size)


def distance_of(name: str, value: Any, unit_us: int | None) -> int:
    """Return a distance in units of the time column; refuse a duration if the unit is unknown."""
    if isinstance(value, int) and not isinstance(value, bool):
        if unit_us == _DAY_US or abs(value) >= 1 << 61:
            raise OptionError(
                f"{name}={value!r}", expected="a duration such as '2 minutes'", hint=f"write the unit of {name}"
            )
        return value
    if unit_us is None:
        raise OptionError(
            f"{name}={value!r}, and the time column holds numbers of an unknown unit, or of nanoseconds",
            expected="a whole number in its unit, or a stream with time_format='epoch_s', 'epoch_ms' or 'epoch_us'",
            hint="give time_format where the stream is made: us.read(…, time_format='epoch_ms')",
        )
    text = value.strip() if isinstance(value, str) else value
    negative = str(text).startswith("-")
    us = duration_argument(name, str(text)[1:] if negative else text, such_as="'2 minutes', or '-2 minutes'")
    return (-us if negative else us) // unit_us
