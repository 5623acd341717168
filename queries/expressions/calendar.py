"""The proleptic Gregorian calendar on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FIRST_DAY", "LAST_DAY", "Int64s", "civil_of_days", "days_in_month", "days_of_civil"]

Int64s = npt.NDArray[np.int64]

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first day of the year 1 and the last of 9999, in days since 1970: the range of Python's dates and the tables."""
_LENGTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def days_of_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Return the days since 1970-01-01; the dates must exist."""
    # Years begin in March, so that a leap day is a year's last; eras have 400 years.
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of_days(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return year, month and day from the days since 1970-01-01."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + np.where(month < 10, 3, -9)
    return year + era * 400 + (month <= 2), month, day


def days_in_month(year: Int64s, month: Int64s) -> Any:
    """Return the lengths of months."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return _LENGTHS[month - 1] + ((month == 2) & leap)
