from calendar import monthrange
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.expressions.kinds import DATE, DOUBLE, DURATION, INT, LONG, MONTHS, TEXT, TIMESTAMP
from upstream.expressions.nodes import Constant
from upstream.expressions.types import call, cast

from .values import evaluate, fields, later, run

_UTC = timezone.utc
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)
_TIMES = st.lists(st.none() | st.datetimes(timezones=st.just(_UTC)), min_size=1, max_size=5)
_BEFORE = datetime(1969, 12, 31, 23, 59, 58, 500_001, _UTC)


def _each(function: object, times: list[datetime | None]) -> list[object]:
    return [None if time is None else function(time) for time in times]  # type: ignore[operator]


@given(times=_TIMES)
@example(times=[datetime.min.replace(tzinfo=_UTC), datetime.max.replace(tzinfo=_UTC), _BEFORE, _EPOCH])
def test_fields(times):
    column = times, TIMESTAMP
    assert evaluate("year", column) == _each(lambda t: t.year, times)
    assert evaluate("quarter", column) == _each(lambda t: (t.month + 2) // 3, times)
    assert evaluate("month", column) == _each(lambda t: t.month, times)
    assert evaluate("day", column) == _each(lambda t: t.day, times)
    assert evaluate("dayofyear", column) == _each(lambda t: t.timetuple().tm_yday, times)
    assert evaluate("dayofweek", column) == _each(lambda t: t.isoweekday() % 7 + 1, times)
    assert evaluate("weekday", column) == _each(lambda t: t.weekday(), times)
    assert evaluate("weekofyear", column) == _each(lambda t: t.isocalendar()[1], times)
    assert evaluate("hour", column) == _each(lambda t: t.hour, times)
    assert evaluate("minute", column) == _each(lambda t: t.minute, times)
    assert evaluate("second", column) == _each(lambda t: t.second, times)
    assert evaluate("second_with_fraction", column) == _each(
        lambda t: Decimal(t.second * 1_000_000 + t.microsecond).scaleb(-6), times
    )
    micros = _each(lambda t: (t - _EPOCH) // timedelta(microseconds=1), times)
    assert evaluate("unix_micros", column) == micros
    assert evaluate("unix_seconds", column) == [None if each is None else each // 1_000_000 for each in micros]
    assert evaluate("unix_millis", column) == [None if each is None else each // 1_000 for each in micros]
    assert evaluate("timestamp_micros", (micros, LONG)) == times


_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_FIRST = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}


def _start(time: datetime, unit: str) -> datetime:
    if unit == "week":
        return _start(time, "day") - timedelta(days=time.weekday())
    if unit == "quarter":
        return _start(time, "month").replace(month=(time.month - 1) // 3 * 3 + 1)
    if unit == "millisecond":
        return time.replace(microsecond=time.microsecond // 1_000 * 1_000)
    parts = ["year", *_FIRST]
    return time.replace(**{part: _FIRST[part] for part in parts[parts.index(unit) + 1 :]})


@pytest.mark.parametrize("unit", _UNITS)
@given(times=_TIMES)
@example(times=[datetime.max.replace(tzinfo=_UTC), _BEFORE, _EPOCH, datetime(1, 1, 8, tzinfo=_UTC)])
def test_starts_of_units(unit, times):
    given = [each for each in times if each is None or each.year > 1]
    if given:
        by_function = _trunc(unit.upper(), given)
        assert by_function == _each(lambda time: _start(time, unit), given)


def _trunc(unit: str | None, times: list[datetime | None]) -> list[object]:
    given, frame, schema = fields((times, TIMESTAMP))
    return run(call("date_trunc", [Constant(unit, TEXT), *given]), frame, schema)


def test_starts_of_units_of_dates():
    dates = [date(2020, 5, 6), None, date(1969, 12, 31)]
    for unit, expected in (
        ("year", [date(2020, 1, 1), None, date(1969, 1, 1)]),
        ("mon", [date(2020, 5, 1), None, date(1969, 12, 1)]),
        ("week", [date(2020, 5, 4), None, date(1969, 12, 29)]),
        ("day", [None] * 3),
    ):
        assert evaluate("trunc", (dates, DATE), constants=[([unit], TEXT)]) == expected


@given(day=st.dates(), months=st.integers(-500, 500))
@example(day=date(2020, 1, 31), months=1)
@example(day=date(9999, 12, 31), months=1)
def test_later_months_end_with_their_last_day(day, months):
    expected = later(day, months)
    columns = ([day], DATE), ([months], INT)
    interval = [([pa.MonthDayNano([months, 0, 0])], MONTHS)]
    if expected is None:
        fails("years 1 to 9999", evaluate, "add_months", *columns)
        return
    assert evaluate("add_months", *columns) == [expected]
    assert evaluate("add", ([day], DATE), constants=interval) == [expected]
    assert evaluate("last_day", ([day], DATE)) == [day.replace(day=monthrange(day.year, day.month)[1])]


def test_intervals_move_times_and_their_difference_is_one():
    later = [(_BEFORE + timedelta(days=1, seconds=-3)), None]
    interval = [([timedelta(days=1, seconds=-3)], DURATION)]
    assert evaluate("add", ([_BEFORE, None], TIMESTAMP), constants=interval) == later
    assert evaluate("subtract", (later, TIMESTAMP), constants=interval) == [_BEFORE, None]
    assert evaluate("subtract", (later, TIMESTAMP), ([_BEFORE] * 2, TIMESTAMP)) == [timedelta(days=1, seconds=-3), None]
    months = [([pa.MonthDayNano([2, 0, 0])], MONTHS)]
    assert evaluate("add", ([_BEFORE], TIMESTAMP), constants=months) == [_BEFORE.replace(year=1970, month=2, day=28)]
    assert evaluate("subtract", ([date(2020, 3, 1)], DATE), ([date(2020, 2, 28)], DATE)) == [timedelta(days=2)]
    doubled = evaluate("multiply", ([timedelta(days=1), None], DURATION), constants=[([-2], INT)])
    assert doubled == [timedelta(days=-2), None]
    fails("does not fit", evaluate, "multiply", ([timedelta(days=10**8)], DURATION), constants=[([10**6], LONG)])


def test_counts_as_timestamps_and_days():
    assert evaluate("timestamp_seconds", ([-2, None], LONG)) == [datetime(1969, 12, 31, 23, 59, 58, tzinfo=_UTC), None]
    assert evaluate("timestamp_millis", ([-1], LONG)) == [_EPOCH - timedelta(milliseconds=1)]
    halves = evaluate("timestamp_seconds", ([-1.5, float("nan"), None], DOUBLE))
    assert halves == [_EPOCH - timedelta(seconds=1.5), None, None]
    money = pa.decimal128(10, 2)
    assert evaluate("timestamp_seconds", ([Decimal("1.25")], money)) == [_EPOCH + timedelta(seconds=1.25)]
    fails("below a microsecond", evaluate, "timestamp_seconds", ([Decimal("0.0000001")], pa.decimal128(10, 7)))
    fails("years 1 to 9999", evaluate, "timestamp_seconds", ([2**62], LONG))
    days = [date(2020, 2, 28), None, date(1970, 1, 1)]
    assert evaluate("date_add", (days, DATE), ([2, 1, -1], INT)) == [date(2020, 3, 1), None, date(1969, 12, 31)]
    assert evaluate("date_sub", (days, DATE), ([-2, 1, 1], INT)) == [date(2020, 3, 1), None, date(1969, 12, 31)]
    assert evaluate("datediff", (days, DATE), ([date(2020, 3, 1)] * 3, DATE)) == [-2, None, -18322]
    assert evaluate("unix_date", (days, DATE)) == [18320, None, 0]
    assert evaluate("date_from_unix_date", ([18320, None], INT)) == [date(2020, 2, 28), None]
    for function, number in (("date_add", 2**31 - 1), ("date_sub", 2**31 - 1)):
        fails("years 1 to 9999", evaluate, function, (days, DATE), ([number] * 3, INT))


def test_an_unknown_unit_has_no_value_and_does_not_look_at_the_time():
    given_, frame, schema = fields((["no time"], TEXT))
    time = cast(given_[0], TIMESTAMP)
    for unit in ("none", None):
        assert run(call("date_trunc", [Constant(unit, TEXT), time]), frame, schema) == [None]
        assert run(call("trunc", [time, Constant(unit, TEXT)]), frame, schema) == [None]
    fails("cannot be cast", run, call("date_trunc", [Constant("day", TEXT), time]), frame, schema)
