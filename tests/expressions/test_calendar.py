from datetime import date

import numpy as np

from upstream.expressions.calendar import FIRST_DAY, LAST_DAY, civil_of_days, days_in_month, days_of_civil

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
