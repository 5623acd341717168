import calendar
from calendar import monthrange
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails, unfit

from upstream.expressions.kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    LOCAL_TIMESTAMP,
    LONG,
    MONTHS,
    TEXT,
    TIMESTAMP,
)
from upstream.expressions.nodes import Call, Constant, Field
from upstream.expressions.times import UNITS
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
    for function in ("timestamp_seconds", "try_to_timestamp"):
        assert evaluate(function, ([-1.5, float("nan"), float("inf"), None], DOUBLE)) == [halves[0], None, None, None]
        for beyond in (1e12, -1e30, 1e305):
            fails("years 1 to 9999", evaluate, function, ([beyond], DOUBLE))
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


UTC = timezone.utc
_MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(2400, 12, 31), timezones=st.just(UTC))
_ENDS = st.sampled_from([datetime(2020, 1, 31, tzinfo=UTC), datetime(2020, 2, 29, 12, tzinfo=UTC)])


@given(year=st.integers(1, 9999), month=st.integers(-1, 14), day=st.integers(-1, 33))
@example(year=2021, month=2, day=29)
@example(year=2000, month=2, day=29)
@example(year=1900, month=2, day=29)
def test_a_date_is_made_or_refused_as_python_does(year, month, day):
    columns = [([value, None], INT) for value in (year, month, day)]
    try:
        expected = date(year, month, day)
    except ValueError:
        fails("no such", evaluate, "make_date", *columns)
    else:
        assert evaluate("make_date", *columns) == [expected, None]


@pytest.mark.parametrize("year", [0, -4, 10_000, 2**31 - 1, -(2**31)])
def test_years_that_the_tables_do_not_hold_are_an_error(year):
    fails("outside the years", evaluate, "make_date", ([2020, year], INT), ([2, 2], INT), ([29, 1], INT))
    assert evaluate("make_date", ([year], INT), ([None], INT), ([99], INT)) == [None]


@given(times=st.lists(_MOMENTS | _ENDS | st.none(), min_size=1, max_size=4), count=st.integers(-400, 400))
@pytest.mark.parametrize("unit", UNITS)
def test_timestampadd(unit, times, count):
    given_, frame, schema = fields((times, TIMESTAMP), ([count] * len(times), LONG))
    made = call("timestampadd", [Constant(unit, TEXT), given_[1], given_[0]])
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}.get(unit)
    if months is None:
        length = {"DAYOFYEAR": "days"}.get(unit, unit.lower() + "s")
        expected = [each and each + count * timedelta(**{length: 1}) for each in times]
    else:
        expected = [each and later(each, count * months) for each in times]
    assert run(made, frame, schema) == expected


@given(start=_MOMENTS | _ENDS, end=_MOMENTS | _ENDS)
@example(start=datetime(2020, 1, 31, 12, tzinfo=UTC), end=datetime(2020, 3, 31, 11, 59, 59, 999999, UTC))
@example(start=datetime(2020, 1, 31, 12, tzinfo=UTC), end=datetime(2020, 3, 31, 12, tzinfo=UTC))
@example(start=datetime(2020, 1, 30, tzinfo=UTC), end=datetime(2020, 2, 29, tzinfo=UTC))
@example(start=datetime(2020, 3, 31, 1, tzinfo=UTC), end=datetime(2020, 2, 29, 2, tzinfo=UTC))
@example(start=datetime(2020, 3, 1, 1, tzinfo=UTC), end=datetime(2020, 2, 29, 2, tzinfo=UTC))
@example(start=datetime(9999, 12, 31, tzinfo=UTC), end=datetime(2020, 2, 29, 23, 59, 59, 999999, UTC))
@example(start=datetime(9999, 12, 31, tzinfo=UTC), end=datetime(2020, 2, 29, tzinfo=UTC))
@pytest.mark.parametrize("unit", [each for each in UNITS if each != "DAYOFYEAR"])
def test_timestampdiff_counts_whole_units(unit, start, end):
    given_, frame, schema = fields(([start, start, None], TIMESTAMP), ([end, None, end], TIMESTAMP))

    def between(one: datetime, other: datetime) -> int:
        """Count as Java does: months by dates alone, once a day that is not whole has been left out of the end.

        So the 29th of February at 23:59 is the 1st of March, seen from a midnight after it.
        """
        size = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}.get(unit)
        if size is None:
            whole = abs(other - one) // timedelta(**{unit.lower() + "s": 1})
            return whole if other > one else -whole
        day = timedelta(days=1)
        if other.date() > one.date() and other.time() < one.time():
            other -= day
        elif other.date() < one.date() and other.time() > one.time():
            other += day
        early, late = sorted((one.date(), other.date()))
        months = (late.year - early.year) * 12 + late.month - early.month - (late.day < early.day)
        return months // size if other.date() >= one.date() else -(months // size)

    found = run(call("timestampdiff", [Constant(unit, TEXT), *given_]), frame, schema)
    assert found == [between(start, end), None, None]


@given(one=_MOMENTS | _ENDS, other=_MOMENTS | _ENDS, rounded=st.booleans())
def test_months_between(one, other, rounded):
    columns = [([one, None], TIMESTAMP), ([other, other], TIMESTAMP)]
    months = float((one.year - other.year) * 12 + one.month - other.month)
    last = [calendar.monthrange(each.year, each.month)[1] == each.day for each in (one, other)]
    if one.day != other.day and not all(last):
        seconds = (one.day - other.day) * 86_400
        seconds += sum(
            sign * (each.hour * 3600 + each.minute * 60 + each.second) for sign, each in ((1, one), (-1, other))
        )
        months += seconds / (31 * 86_400)
    found = evaluate("months_between", *columns, constants=[([rounded], BOOLEAN)])
    assert found[1] is None
    assert found[0] == pytest.approx(months, abs=5.1e-9 if rounded else 1e-12)
    assert evaluate("months_between", *columns)[0] == pytest.approx(months, abs=5.1e-9)


def test_what_leaves_the_years_is_an_error_however_far():
    for unit, count in (("YEAR", 2**62), ("MONTH", -(2**63)), ("WEEK", 2**63 - 1), ("MICROSECOND", 2**63 - 1)):
        given_, frame, schema = fields(([datetime(2020, 1, 1, tzinfo=UTC)], TIMESTAMP), ([count], LONG))
        fails(
            "outside the years", run, call("timestampadd", [Constant(unit, TEXT), given_[1], given_[0]]), frame, schema
        )


def test_types_are_sparks():
    unit, local, day = Constant("day", TEXT), Field("l", LOCAL_TIMESTAMP), Field("d", DATE)
    assert call("timestampadd", [unit, Constant(1, INT), day]).type == TIMESTAMP
    assert call("dateadd", [unit, Constant(1, INT), local]).type == LOCAL_TIMESTAMP
    assert call("timestampdiff", [unit, day, local]).type == LONG
    assert call("months_between", [day, local]).type == DOUBLE
    assert call("date_add", [day, Constant(1, INT)]) == Call("date_add", (day, Constant(1, INT)), DATE)
    assert call("date_diff", [day, day]) == Call("datediff", (day, day), INT)
    given_, frame, schema = fields(([datetime(2020, 1, 31, 5)], LOCAL_TIMESTAMP))
    made = call("timestampadd", [Constant("MONTH", TEXT), Constant(1, INT), given_[0]])
    assert run(made, frame, schema) == [datetime(2020, 2, 29, 5)]


@pytest.mark.parametrize(
    ("function", "types", "part"),
    [
        ("timestampadd", (DATE, INT), "a unit and two values"),
        ("timestampdiff", (TEXT, DATE, DATE), "MICROSECOND"),
        ("timestampdiff", (DATE, DATE), "SECOND"),
        ("make_date", (DATE, INT, INT), r"make_date\(INT, INT, INT\)"),
        ("months_between", (INT, DATE), "months_between"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(function, types, part):
    unfit(part, call, function, [Field("x", each) for each in types])
    unfit("TIMESTAMP or DATE", call, "timestampdiff", [Constant("DAY", TEXT), Field("x", BOOLEAN), Field("d", DATE)])
    unfit(
        "the unit is one of", call, "timestampdiff", [Constant("DAYOFYEAR", TEXT), Field("d", DATE), Field("d", DATE)]
    )
