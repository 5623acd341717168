from datetime import date, datetime, timezone

import pytest
from kit.failures import fails

from upstream.expressions.calendar import DAY, SECOND
from upstream.expressions.kinds import INT, LONG

from .values import evaluate

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
