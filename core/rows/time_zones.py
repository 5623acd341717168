"""Conversions between local times and instants for whole columns, by Python's ``zoneinfo``."""

from __future__ import annotations

import datetime as dt
import functools
import re
import zoneinfo
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...conf.errors import OptionError
from .exact_integers import Int64s

__all__ = ["in_utc", "instants_near", "instants_of", "local_micros", "zone_named"]

# Zones are read by zoneinfo, which alone applies a zone's last rule forever: Arrow stops in 2037, Polars in 2099.
_DAY_S = 86_400
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
# The calendar repeats every 400 years, and rules do once a zone has come to its last one.
_CYCLE_YEARS = 400
_CYCLE_S = 146_097 * _DAY_S
_LAST_RULES = 2400
_YEARS = (1, 9999)


class _Rules(NamedTuple):
    """The offsets of a zone in seconds, and the epoch second from which each is valid."""

    starts: Int64s
    offsets: Int64s


@functools.lru_cache(maxsize=1024)
def zone_named(name: str) -> zoneinfo.ZoneInfo:
    """Return a zone by its IANA name, or raise an OptionError if this machine does not have it."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise OptionError(
            f"the time zone {name!r} is unknown here",
            expected="an IANA name such as 'Europe/Paris' or 'UTC'",
            hint="for a fixed offset give one of the names Etc/GMT-14 to Etc/GMT+12, whose signs are reversed; "
            "if the name is right, install the package tzdata",
        ) from error


def in_utc(array: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Return local times as instants in the same unit; `zone` is an IANA name, or an offset such as ``+02:00``.

    An ambiguous local time is its first instant. A skipped one is the instant of the change.
    """
    per_second = _PER_SECOND[array.type.unit]
    kind = pa.timestamp(array.type.unit, "UTC")
    valid = array.is_valid().to_numpy()
    local = array.cast(pa.int64()).fill_null(0).to_numpy()
    instants = _instants(local, zone, per_second, shifted=False)
    return pa.chunked_array([pa.array(instants, mask=~valid).cast(kind)])


def instants_of(local: Int64s, zone: str, *, shifted: bool = False) -> Int64s:
    """Return local times as instants, both in microseconds since the epoch, as :func:`in_utc` does.

    With `shifted`, a skipped local time is later by the length of the gap, as in Java's ``ZonedDateTime.of``. Without,
    it is the instant of the change, as in ``LocalDate.atStartOfDay``.
    """
    return _instants(local, zone, 1_000_000, shifted=shifted)


def instants_near(local: Int64s, before: Int64s, zone: str) -> Int64s:
    """Return the instants of local times to which the instants `before` were moved, in microseconds.

    An ambiguous local time keeps the offset from before the move if it can, as in Java's ``ZonedDateTime.plusDays``.
    Otherwise the rule is that of :func:`instants_of`, shifted.
    """
    offset = local_micros(before, zone) - before
    kept = local - offset
    return np.where(local_micros(kept, zone) - kept == offset, kept, instants_of(local, zone, shifted=True))


def _instants(local: Int64s, zone: str, per_second: int, *, shifted: bool) -> Int64s:
    rules = _rules_for(local // per_second, zone)
    if len(rules.starts) == 1:
        return local - rules.offsets * per_second
    # An offset holds up to the local time that clocks show at its end, by itself.
    ends = np.maximum.accumulate(rules.starts[1:] + rules.offsets[:-1])
    at = np.searchsorted(ends, local // per_second, "right")
    instants = local - rules.offsets[at] * per_second
    start = rules.starts[at]
    skipped = instants // per_second < start
    if skipped.any():
        later = local - rules.offsets[np.maximum(at - 1, 0)] * per_second if shifted else start * per_second
        instants = np.where(skipped, later, instants)
    return instants


def local_micros(instants: Int64s, zone: str) -> Int64s:
    """Return instants as local times, both in microseconds since the epoch."""
    seconds = instants // 1_000_000
    rules = _rules_for(seconds, zone)
    at = np.searchsorted(rules.starts, seconds, "right") - 1
    return instants + rules.offsets[np.maximum(at, 0)] * 1_000_000


def _rules_for(seconds: Int64s, zone: str) -> _Rules:
    """Return the rules of all years around some times."""
    least, greatest = (int(seconds.min()), int(seconds.max())) if len(seconds) else (0, 0)
    return _rules(zone, _year(least) - 1, _year(greatest) + 1)


def _year(second: int) -> int:
    days = min(max(second // _DAY_S, -800_000), 3_000_000)
    return min(max(int(np.datetime64(days, "D").astype("M8[Y]").astype(np.int64)) + 1970, _YEARS[0]), _YEARS[1])


@functools.lru_cache(maxsize=256)
def _rules(zone: str, least: int, greatest: int) -> _Rules:
    if match := _OFFSET.fullmatch(zone):
        sign, hours, minutes = match.groups()
        offset = (int(hours) * 60 + int(minutes)) * (-60 if sign == "-" else 60)
        return _Rules(np.array([np.iinfo(np.int64).min // 2]), np.array([offset]))
    starts, offsets = [np.iinfo(np.int64).min // 2], [_first_offset(zone, max(least, _YEARS[0]))]
    for year in range(max(least, _YEARS[0]), min(greatest, _YEARS[1]) + 1):
        cycles = max((year - _LAST_RULES) // _CYCLE_YEARS, 0)
        for start, offset in _changes(zone, year - cycles * _CYCLE_YEARS):
            starts.append(start + cycles * _CYCLE_S)
            offsets.append(offset)
    return _Rules(np.array(starts, dtype=np.int64), np.array(offsets, dtype=np.int64))


def _first_offset(zone: str, year: int) -> int:
    return _offset(zone_named(zone), _second(max(year, 2)))


@functools.lru_cache(maxsize=8192)
def _changes(zone: str, year: int) -> tuple[tuple[int, int], ...]:
    """Return the instants in a year at which the offset changes, each with the new one."""
    rules, found = zone_named(zone), list[tuple[int, int]]()
    first = _second(max(year, 2))  # in the year 1 local times may be outside of Python's range
    last = _second(year + 1) if year < _YEARS[1] else _second(year) + 364 * _DAY_S
    before = _offset(rules, first)
    for day in range(first, last, _DAY_S):
        after = _offset(rules, min(day + _DAY_S, last))
        if after != before:
            early, late = day, day + _DAY_S
            while late - early > 1:
                middle = (early + late) // 2
                early, late = (early, middle) if _offset(rules, middle) != before else (middle, late)
            found.append((late, after))
            before = after
    return tuple(found)


def _second(year: int) -> int:
    return int((dt.datetime(year, 1, 1, tzinfo=dt.timezone.utc) - _EPOCH).total_seconds())


def _offset(zone: zoneinfo.ZoneInfo, second: int) -> int:
    offset = (_EPOCH + dt.timedelta(seconds=second)).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
