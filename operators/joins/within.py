"""The distance in time between rows that meet, as the user gives it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from ...conf.arguments import duration_argument
from ...conf.errors import OptionError, SchemaError
from ...core.rows.event_times import EPOCH_UNITS, check_time_type
from .band import Band, IntervalBand, TumblingBand

__all__ = ["Interval", "band_of", "distance_of", "interval", "unit_of"]

_DAY_US = 86_400_000_000


@dataclasses.dataclass(frozen=True)
class Interval:
    """The time by which a row of the right may precede and follow a row of the left. Made by :func:`interval`."""

    before: str | int  # a duration; or a whole number, in the unit of a time column of numbers
    after: str | int  # likewise


def interval(*, before: str | int = "0 s", after: str | int = "0 s") -> Interval:
    """Say how far apart in time two rows may be that meet in a join.

    Parameters
    ----------
    before
        How much earlier the row of the right may be than that of the left.
    after
        How much later it may be. ``interval(before="-1 minute", after="5 minutes")`` is from one minute to five minutes
        later.

    Returns
    -------
    Interval
        For ``left.join(right, within=…)``.

    Examples
    --------
    >>> us.interval(before="2 minutes", after="3 minutes")
    Interval(before='2 minutes', after='3 minutes')
    """
    return Interval(before, after)


def unit_of(name: str, kind: pa.DataType, time_format: str | None) -> int | None:
    """Return the microseconds of one unit of a time column; None for numbers without a format."""
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
    if per_second > 1_000_000:
        raise OptionError(
            f"time_format={time_format!r} in a join",
            expected="epoch_s, epoch_ms or epoch_us",
            hint="give before and after as whole numbers, in the column's unit, and no time_format",
        )
    return 1_000_000 // per_second


def band_of(within: Any, tumbling: Any, unit_us: int | None) -> Band:
    """Return the band of `within` or `tumbling`, in units of the time column; refuse both and neither."""
    if (within is None) == (tumbling is None):
        raise OptionError(
            "a join without a bound in time" if within is None else "a join with both within and tumbling",
            expected="within=us.interval(before=…, after=…), or tumbling='1 minute'",
            hint="say how far apart the rows may be that meet: without a bound all rows would be kept for ever",
        )
    if tumbling is not None:
        size = distance_of("tumbling", tumbling, unit_us)
        if size < 1:
            raise OptionError(
                f"tumbling={tumbling!r}", expected="at least one unit of the time column", hint="take a longer window"
            )
        return TumblingBand(size)
    if not isinstance(within, Interval):
        raise OptionError(
            f"within={within!r}",
            expected="us.interval(before='2 minutes', after='3 minutes')",
            hint="give both directions by name",
        )
    before, after = distance_of("before", within.before, unit_us), distance_of("after", within.after, unit_us)
    if before + after < 0:
        raise OptionError(
            f"within={within!r}: no time is that far before and that far after",
            expected="before and after whose sum is not negative",
            hint="a negative `before` means later: interval(before='-1 minute', after='5 minutes') is one to five "
            "minutes later",
        )
    return IntervalBand(before, after)


def distance_of(name: str, value: Any, unit_us: int | None) -> int:
    """Return a distance in units of the time column; refuse a duration if the unit is unknown."""
    if isinstance(value, int) and not isinstance(value, bool):
        if unit_us not in (None, 1) or abs(value) >= 1 << 61:
            raise OptionError(
                f"{name}={value!r}", expected="a duration such as '2 minutes'", hint=f"say in which unit {name} is"
            )
        return value
    if unit_us is None:
        raise OptionError(
            f"{name}={value!r}, and the time column holds numbers",
            expected="a whole number in its unit, or time_format=… such as 'epoch_ms'",
            hint="say what the numbers count: join(…, time_format='epoch_ms')",
        )
    text = value.strip() if isinstance(value, str) else value
    negative = str(text).startswith("-")
    us = duration_argument(name, str(text)[1:] if negative else text, such_as="'2 minutes', or '-2 minutes'")
    return (-us if negative else us) // unit_us
