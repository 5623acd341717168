"""Session time zones in expressions: local times of instants, and instants of local times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl

from ..conf.errors import OptionError
from ..core.rows.event_times import instants_near, instants_of, local_micros, zone_named
from ..core.rows.exact_integers import Int64s
from .calendar import DAY, micros_of, on_integers, timestamps_of
from .columnar import Builder, Kernel
from .decimals import int128
from .kinds import DATE, LOCAL_TIMESTAMP, MONTHS, TEXT, TIMESTAMP, UTC, standard
from .nodes import Call, Constant, Expression
from .notation import offset_of_zone, timestamp_of_text
from .times import LENGTHS, MONTHS_OF, MOST_MONTHS, TIMES, months_later, months_since

_UTC_NAMES = {UTC, "Etc/UTC", "Etc/UCT", "UCT", "Etc/Zulu", "Zulu", "Etc/Universal", "Universal", "Etc/GMT", "GMT"}
_FURTHEST = 10**18
"""Microseconds that lead out of the years 1 to 9999 from any time in them."""


def zone_of_session(name: str) -> str:
    """Return the canonical name or offset of a session's time zone; raise OptionError if this machine lacks it."""
    if name in _UTC_NAMES:
        return UTC
    ahead = offset_of_zone(name)
    if ahead is None:
        return str(zone_named(name).key)
    if ahead % 60:
        raise OptionError(f"the time zone {name!r} has seconds", expected="hours and minutes, such as +05:30")
    hours, minutes = divmod(abs(ahead) // 60, 60)
    return f"{'-' if ahead < 0 else '+'}{hours:02d}:{minutes:02d}" if ahead else UTC


def in_zone(expression: Expression, zone: str) -> Expression:
    """Move an expression from UTC to a time zone of :func:`zone_of_session`.

    The zone is part of the expression and not of the process that evaluates it. So queries of different zones differ,
    and a query has the same results on every machine. A function that depends on a zone becomes a function of local
    times, or one with the zone as its last argument.
    """
    if zone == UTC or not isinstance(expression, Call):
        return expression
    arguments = tuple(in_zone(each, zone) for each in expression.arguments)
    call = expression if arguments == expression.arguments else replace(expression, arguments=arguments)
    rule = _RULES.get(call.function)
    return call if rule is None else rule(call, Constant(zone, TEXT))


_Rule = Callable[[Call, Constant], Expression]


def _local(value: Expression, zone: Constant) -> Expression:
    """Return the local time of an instant; other values stay."""
    if standard(value.type) != TIMESTAMP:
        return value
    return Call("local_time", (value, zone), LOCAL_TIMESTAMP)


def _of_local(call: Call, zone: Constant) -> Expression:
    return replace(call, arguments=tuple(_local(each, zone) for each in call.arguments))


def _to_instant(call: Call, zone: Constant) -> Expression:
    """Return the instant of a local time that a function makes from parts or text."""
    if call.type != TIMESTAMP:
        return call
    return Call("instant", (replace(call, type=LOCAL_TIMESTAMP), zone), TIMESTAMP)


def _cast(call: Call, zone: Constant) -> Expression:
    (value,) = call.arguments
    given = standard(value.type)
    if given == TIMESTAMP and call.type in (TEXT, DATE, LOCAL_TIMESTAMP):
        local = _local(value, zone)
        return local if call.type == LOCAL_TIMESTAMP else replace(call, arguments=(local,))
    if call.type != TIMESTAMP or given not in (TEXT, DATE, LOCAL_TIMESTAMP):
        return call
    if given == TEXT:
        return Call("try_text_time" if call.function == "try_cast" else "text_time", (value, zone), TIMESTAMP)
    if given == DATE:
        return Call("day_start", (value, zone), TIMESTAMP)
    return Call("instant", (value, zone), TIMESTAMP)


def _from_unixtime(call: Call, zone: Constant) -> Expression:
    return Call("cast", (_local(Call("timestamp_seconds", call.arguments, TIMESTAMP), zone),), TEXT)


def _with_zone(call: Call, zone: Constant) -> Expression:
    """Return a variant of the function that takes the zone as its last argument."""
    if not any(standard(each.type) == TIMESTAMP for each in call.arguments):
        return call
    return replace(call, function=f"{call.function}_in_zone", arguments=(*call.arguments, zone))


def _moved(call: Call, zone: Constant) -> Expression:
    """Move a time by an interval: days depend on the zone, shorter intervals do not."""
    time, interval = call.arguments
    if standard(time.type) != TIMESTAMP or call.type != TIMESTAMP:
        return call
    value = interval.value if isinstance(interval, Constant) else None
    if isinstance(value, timedelta) and abs(value) < timedelta(days=1):
        return call
    return _with_zone(call, zone)


def _timestampadd_rule(call: Call, zone: Constant) -> Expression:
    """Move a time by some units: hours and shorter ones do not depend on the zone."""
    unit = call.arguments[0]
    assert isinstance(unit, Constant)
    return call if LENGTHS.get(unit.value, DAY) < DAY else _with_zone(call, zone)


def _differs(call: Call, zone: Constant) -> Expression:
    return call if standard(call.arguments[0].type) == DATE else _of_local(call, zone)


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("hour", "minute", "second", "second_with_fraction", "date_format"), _of_local),
    **dict.fromkeys(("timestampdiff", "subtract_times"), _differs),
    **dict.fromkeys(("cast", "try_cast"), _cast),
    **dict.fromkeys(("parse_time", "try_parse_time", "make_timestamp", "try_make_timestamp"), _to_instant),
    **dict.fromkeys(("date_trunc", "months_between"), _with_zone),
    "timestampadd": _timestampadd_rule,
    **dict.fromkeys(("add_interval", "subtract_interval"), _moved),
    "from_unixtime": _from_unixtime,
}


def _zone(build: Builder) -> str:
    return str(build.constant(len(build.call.arguments) - 1, "the time zone"))


def _local_time(build: Builder, time: pl.Expr, _: pl.Expr) -> pl.Expr:
    zone = _zone(build)
    return on_integers(lambda array: local_micros(array, zone), micros_of(time)).cast(pl.Datetime("us"))


def _instant(build: Builder, local: pl.Expr, _: pl.Expr) -> pl.Expr:
    zone = _zone(build)
    return timestamps_of(build, on_integers(lambda array: instants_of(array, zone, shifted=True), micros_of(local)))


def _day_start(build: Builder, date: pl.Expr, _: pl.Expr) -> pl.Expr:
    zone = _zone(build)
    days = date.to_physical().cast(pl.Int64)
    return timestamps_of(build, on_integers(lambda array: instants_of(array * DAY, zone), days))


def _text_time(build: Builder, text: pl.Expr, _: pl.Expr) -> pl.Expr:
    made = timestamp_of_text(build, text, _zone(build))
    return build.strict(
        made, "it cannot be cast to TIMESTAMP", "use try_cast, which gives null, or leave such rows out"
    )


_CLOCK_UNITS = {"MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": DAY, "DD": DAY}


def _date_trunc(build: Builder, unit: pl.Expr, time: pl.Expr, _: pl.Expr) -> pl.Expr:
    zone, name = _zone(build), build.constant(0, "the unit")
    size = None if name is None else _CLOCK_UNITS.get(str(name).upper())
    if size is not None:

        def run(array: Int64s) -> Int64s:
            return instants_near(local_micros(array, zone) // size * size, array, zone)

        return timestamps_of(build, on_integers(run, micros_of(time)))
    truncated = TIMES["date_trunc"]
    if name is None or str(name).upper() in ("MICROSECOND", "MILLISECOND", "SECOND"):
        return truncated(build, unit, time)  # offsets have whole seconds
    local = on_integers(lambda array: local_micros(array, zone), micros_of(time)).cast(pl.Datetime("us"))
    began = micros_of(truncated(build, unit, local))
    return timestamps_of(build, on_integers(lambda array: instants_of(array, zone), began))


def _moved_by(build: Builder, time: pl.Expr, micros: pl.Expr, zone: str) -> pl.Expr:
    """Move times by microseconds: first by whole days of the zone, then by the rest in the same direction."""

    def run(array: Int64s, by: Int64s) -> Int64s:
        days = np.sign(by) * (np.abs(by) // DAY)
        return instants_near(local_micros(array, zone) + days * DAY, array, zone) + by - days * DAY

    near = micros.clip(-_FURTHEST, _FURTHEST).cast(pl.Int64)
    return timestamps_of(build, on_integers(run, micros_of(time), near))


def _moved_by_months(build: Builder, time: pl.Expr, months: pl.Expr, zone: str) -> pl.Expr:
    def run(array: Int64s, by: Int64s) -> Int64s:
        local = local_micros(array, zone)
        return instants_near(months_later(local // DAY, by) * DAY + local % DAY, array, zone)

    return timestamps_of(build, on_integers(run, micros_of(time), months.cast(pl.Int64)))


def _with_interval(sign: int) -> Kernel:
    def kernel(build: Builder, time: pl.Expr, interval: pl.Expr, _: pl.Expr) -> pl.Expr:
        zone, given = _zone(build), build.call.arguments[1]
        if given.type == MONTHS:
            return _moved_by_months(build, time, interval * sign, zone)
        return _moved_by(build, time, micros_of(interval).cast(pl.Int128) * sign, zone)

    return kernel


def _timestampadd(build: Builder, _: pl.Expr, count: pl.Expr, time: pl.Expr, __: pl.Expr) -> pl.Expr:
    zone, unit = _zone(build), build.constant(0, "the unit")
    if unit in LENGTHS:
        return _moved_by(build, time, count.cast(pl.Int128) * int128(LENGTHS[unit]), zone)
    return _moved_by_months(build, time, count.clip(-MOST_MONTHS, MOST_MONTHS) * MONTHS_OF[unit], zone)


def _months_between(build: Builder, one: pl.Expr, other: pl.Expr, *more: pl.Expr) -> pl.Expr:
    zone = _zone(build)

    def day(array: Int64s) -> Int64s:
        return local_micros(array, zone) // DAY

    def second(array: Int64s) -> Int64s:  # since the day began, and not what clocks show
        return (array - instants_of(day(array) * DAY, zone)) // 1_000_000

    times = [micros_of(one), micros_of(other)]
    parts = [on_integers(part, each) for each in times for part in (day, second)]
    return months_since(*parts, rounded=more[0] if len(more) == 2 else None)


ZONES: Mapping[str, Kernel] = {
    "local_time": _local_time,
    "instant": _instant,
    "day_start": _day_start,
    "text_time": _text_time,
    "date_trunc_in_zone": _date_trunc,
    "add_interval_in_zone": _with_interval(1),
    "subtract_interval_in_zone": _with_interval(-1),
    "timestampadd_in_zone": _timestampadd,
    "months_between_in_zone": _months_between,
}
