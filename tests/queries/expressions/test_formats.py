from datetime import date, datetime, timezone

import pytest

from upstream.queries.expressions.kinds import DATE, INT, LONG, TEXT, TIMESTAMP

from ..failing import fails, unfit
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
def test_written(pattern: str, expected: str) -> None:
    assert evaluate("date_format", ([_MORNING, None], TIMESTAMP), constants=[([pattern], TEXT)]) == [expected, None]


@pytest.mark.parametrize("pattern", ["S 'o''clock'", "YYYY", "EEEEE", "MMMMM", "yyyy-MM-dd'", "SSSSSSS", "z"])
def test_formats_that_are_refused(pattern: str) -> None:
    unfit("format", evaluate, "date_format", ([_MORNING], TIMESTAMP), constants=[([pattern], TEXT)])


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("2020-03-05", "yyyy-MM-dd", datetime(2020, 3, 5)),
        ("2020-3-5", "yyyy-MM-dd", None),
        ("2020-03-05 ", "yyyy-MM-dd", None),
        ("2021-02-29", "yyyy-MM-dd", None),
        ("2020", "yyyy", datetime(2020, 1, 1)),
        ("03", "MM", datetime(1970, 3, 1)),
        ("2020-01-01 24:00:00", "yyyy-MM-dd HH:mm:ss", None),
        ("2020-01-01 10:00", "yyyy-MM-dd HH:mm", datetime(2020, 1, 1, 10)),
        ("2020-01-01 10:00:00.12", "yyyy-MM-dd HH:mm:ss.SSS", datetime(2020, 1, 1, 10, 0, 0, 120000)),
        ("20200101", "yyyyMMdd", datetime(2020, 1, 1)),
        ("202001011", "yyyyMMdd", None),
        ("٢٠٢٠0101", "yyyyMMdd", None),
    ],
)
def test_read(text: str, pattern: str, expected: datetime | None) -> None:
    given, constants = ([text, None], TEXT), [([pattern], TEXT)]
    made = None if expected is None else expected.replace(tzinfo=_UTC)
    assert evaluate("try_to_timestamp", given, constants=constants) == [made, None]
    assert evaluate("try_to_date", given, constants=constants) == [None if made is None else made.date(), None]
    if made is None:
        fails("no time in the format", evaluate, "to_timestamp", given, constants=constants)


def test_a_year_that_tables_cannot_hold_is_refused() -> None:
    for text in ("+12020-01-01", "-2020-01-01", "0000-01-01"):
        fails("year", evaluate, "try_to_date", ([text], TEXT), constants=[(["yyyy-MM-dd"], TEXT)])


def test_seconds_as_text_and_back() -> None:
    assert evaluate("from_unixtime", ([0, -1], LONG), constants=[(["yyyy"], TEXT)]) == ["1970", "1969"]
    assert evaluate("unix_timestamp", (["2020-01-01 00:00:00"], TEXT)) == [1577836800]
    assert evaluate("unix_timestamp", (["2020"], TEXT), constants=[(["yyyy"], TEXT)]) == [1577836800]


def test_names_and_next_days() -> None:
    days = [date(2020, 1, 1), None, date(9999, 12, 31)], DATE
    assert evaluate("dayname", days) == ["Wed", None, "Fri"]
    assert evaluate("monthname", days) == ["Jan", None, "Dec"]
    week = [date(2020, 1, day) for day in range(6, 13)]
    expected = [date(2020, 1, 14 if day > 6 else 7) for day in range(6, 13)]
    assert evaluate("next_day", (week, DATE), constants=[(["tU"], TEXT)]) == expected
    unfit("no day of the week", evaluate, "next_day", (week, DATE), constants=[(["xx"], TEXT)])


def test_make_timestamp() -> None:
    parts = [([each], INT) for each in (2020, 1, 2, 3, 4)]
    seconds = [5.678901, 60.0]
    for second, expected in zip(
        seconds, (datetime(2020, 1, 2, 3, 4, 5, 678901), datetime(2020, 1, 2, 3, 5)), strict=True
    ):
        assert evaluate("make_timestamp", *parts, constants=[([str(second)], TEXT)]) == [expected.replace(tzinfo=_UTC)]
    no_month = [([each], INT) for each in (2020, 13, 2, 0, None)]
    assert evaluate("make_timestamp", *no_month, constants=[(["0"], TEXT)]) == [None], "a null comes before an error"
    for wrong in ([2020, 1, 2, 24, 0], [2020, 1, 2, 0, 60], [2020, 13, 2, 0, 0]):
        given = [([each], INT) for each in wrong]
        fails("there is no such", evaluate, "make_timestamp", *given, constants=[(["0"], TEXT)])
        assert evaluate("try_make_timestamp", *given, constants=[(["0"], TEXT)]) == [None]
