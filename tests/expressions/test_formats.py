from datetime import date, datetime, timezone

import pytest
from kit.failures import fails, unfit

from upstream.expressions.kinds import DATE, INT, LONG, TEXT, TIMESTAMP

from .values import evaluate

_UTC = timezone.utc
_MORNING = datetime(2020, 1, 1, 10, 0, 0, 987654, _UTC)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("E EEEE MMM MMMM a h hh d M H m s yy D DDD", "Wed Wednesday Jan January AM 10 10 1 1 10 0 0 20 1 001"),
        ("S SS SSSS SSSSS", "9 98 9876 98765"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "2020-01-01T10:00:00.987"),
        ("yyyy'%Y'", "2020%Y"),
    ],
)
def test_written(pattern, expected):
    assert evaluate("date_format", ([_MORNING, None], TIMESTAMP), constants=[([pattern], TEXT)]) == [expected, None]


@pytest.mark.parametrize("pattern", ["S 'o''clock'", "YYYY", "EEEEE", "MMMMM", "yyyy-MM-dd'", "SSSSSSS", "z"])
def test_formats_that_are_refused(pattern):
    unfit("format", evaluate, "date_format", ([_MORNING], TIMESTAMP), constants=[([pattern], TEXT)])


_MIDNIGHT = datetime(2020, 1, 1, tzinfo=_UTC)


@pytest.mark.parametrize(
    ("pattern", "texts", "expected"),
    [
        ("yyyy-MM-dd", ["2020-03-05"], datetime(2020, 3, 5, tzinfo=_UTC)),
        ("yyyy-MM-dd", ["2020-3-5", "2020-03-05 ", "2021-02-29"], None),
        ("yyyy", ["2020"], _MIDNIGHT),
        ("MM", ["03"], datetime(1970, 3, 1, tzinfo=_UTC)),
        ("yyyy-MM-dd HH:mm:ss", ["2020-01-01 24:00:00"], None),
        ("yyyy-MM-dd HH:mm", ["2020-01-01 10:00"], _MIDNIGHT.replace(hour=10)),
        ("yyyy-MM-dd HH:mm:ss.SSS", ["2020-01-01 00:00:00.12"], _MIDNIGHT.replace(microsecond=120000)),
        ("yyyyMMdd", ["20200101"], _MIDNIGHT),
        ("yyyyMMdd", ["202001011", "٢٠٢٠0101"], None),
    ],
)
def test_read(pattern, texts, expected):
    given, constants = ([*texts, None], TEXT), [([pattern], TEXT)]
    assert evaluate("try_to_timestamp", given, constants=constants) == [*[expected] * len(texts), None]
    days = [None if expected is None else expected.date()] * len(texts)
    assert evaluate("try_to_date", given, constants=constants) == [*days, None]
    for text in texts if expected is None else ():
        fails("not a time in the format", evaluate, "to_timestamp", ([text], TEXT), constants=constants)


def test_seconds_as_text_and_names_of_days():
    assert evaluate("from_unixtime", ([0, -1], LONG), constants=[(["yyyy"], TEXT)]) == ["1970", "1969"]
    assert evaluate("unix_timestamp", (["2020-01-01 00:00:00"], TEXT)) == [1577836800]
    assert evaluate("unix_timestamp", (["2020"], TEXT), constants=[(["yyyy"], TEXT)]) == [1577836800]
    for text in ("+12020-01-01", "-2020-01-01", "0000-01-01"):
        fails("year", evaluate, "try_to_date", ([text], TEXT), constants=[(["yyyy-MM-dd"], TEXT)])
    days = [date(2020, 1, 1), None, date(9999, 12, 31)], DATE
    assert evaluate("dayname", days) == ["Wed", None, "Fri"]
    assert evaluate("monthname", days) == ["Jan", None, "Dec"]
    week = [date(2020, 1, day) for day in range(6, 13)]
    expected = [date(2020, 1, 14 if day > 6 else 7) for day in range(6, 13)]
    assert evaluate("next_day", (week, DATE), constants=[(["tU"], TEXT)]) == expected
    unfit("not a day of the week", evaluate, "next_day", (week, DATE), constants=[(["xx"], TEXT)])


def test_make_timestamp():
    parts, no_second = [([each], INT) for each in (2020, 1, 2, 3, 4)], [(["0"], TEXT)]
    for second, expected in (("5.678901", datetime(2020, 1, 2, 3, 4, 5, 678901)), ("60.0", datetime(2020, 1, 2, 3, 5))):
        assert evaluate("make_timestamp", *parts, constants=[([second], TEXT)]) == [expected.replace(tzinfo=_UTC)]
    no_month = [([each], INT) for each in (2020, 13, 2, 0, None)]
    assert evaluate("make_timestamp", *no_month, constants=no_second) == [None], "a null comes before an error"
    for wrong in ([2020, 1, 2, 24, 0], [2020, 1, 2, 0, 60], [2020, 13, 2, 0, 0]):
        given = [([each], INT) for each in wrong]
        fails("there is no such", evaluate, "make_timestamp", *given, constants=no_second)
        assert evaluate("try_make_timestamp", *given, constants=no_second) == [None]
