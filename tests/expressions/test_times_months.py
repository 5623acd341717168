import calendar
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails, unfit

from upstream.expressions.kinds import BOOLEAN, DATE, DOUBLE, INT, LOCAL_TIMESTAMP, LONG, TEXT, TIMESTAMP
from upstream.expressions.nodes import Call, Constant, Field
from upstream.expressions.times import UNITS
from upstream.expressions.types import call

from .values import evaluate, fields, later, run

UTC = timezone.utc
_DATES = st.dates(date(1600, 1, 1), date(2400, 12, 31))
_TIMES = st.datetimes(datetime(1600, 1, 1), datetime(2400, 12, 31), timezones=st.just(UTC))
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


@given(times=st.lists(_TIMES | _ENDS | st.none(), min_size=1, max_size=4), count=st.integers(-400, 400))
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


@given(start=_TIMES | _ENDS, end=_TIMES | _ENDS)
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


@given(one=_TIMES | _ENDS, other=_TIMES | _ENDS, rounded=st.booleans())
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
