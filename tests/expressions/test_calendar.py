from datetime import date, datetime, timezone

import numpy as np
import pytest
from kit.failures import fails

from upstream.expressions.calendar import DAY, FIRST_DAY, LAST_DAY, SECOND, civil_of_days, days_in_month, days_of_civil
from upstream.expressions.kinds import INT, LONG

from .values import evaluate

_EPOCH = date(1970, 1, 1).toordinal()


def test_every_day_of_ten_thousand_years_there_and_back():
    days = np.arange(FIRST_DAY - 400, LAST_DAY + 400)
    year, month, day = civil_of_days(days)
    assert np.array_equal(days_of_civil(year, month, day), days)
    assert np.array_equal(day[1:] == 1, (day == days_in_month(year, month))[:-1]), "the first comes after the last"


def test_days_are_those_of_python():
    some = np.array([FIRST_DAY, -1, 0, 59, 11_016, LAST_DAY, *range(-200_000, 200_000, 997)])
    found = zip(*(part.tolist() for part in civil_of_days(some)), strict=True)
    expected = [date.fromordinal(int(each) + _EPOCH) for each in some]
    assert list(found) == [(each.year, each.month, each.day) for each in expected]


_FIRST = datetime(1, 1, 1, tzinfo=timezone.utc)
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc)


def test_the_first_and_the_last_moment_are_inside():
    first, last = -719_162 * DAY, 2_932_897 * DAY - 1
    assert DAY == 86_400 * SECOND
    assert evaluate("timestamp_micros", ([first, last, None], LONG)) == [_FIRST, _LAST, None]
    assert evaluate("date_from_unix_date", ([-719_162, 2_932_896], INT)) == [date(1, 1, 1), date(9999, 12, 31)]


@pytest.mark.parametrize(
    ("function", "dtype", "outside"),
    [
        *(("timestamp_micros", LONG, each) for each in (-719_162 * DAY - 1, 2_932_897 * DAY)),
        *(("date_from_unix_date", INT, each) for each in (-719_163, 2_932_897)),
    ],
)
def test_one_outside_is_an_error(function, dtype, outside):
    fails("outside the years", evaluate, function, ([0, outside], dtype))
