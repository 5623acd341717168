"""Text as numbers, dates and timestamps, in the forms that Spark's casts read."""

import math
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import QueryError
from upstream.queries.expressions.kinds import DATE, DOUBLE, FLOAT, LOCAL_TIMESTAMP, TEXT, TIMESTAMP

from .values import evaluate_cast


def _read(text: str, dtype: pa.DataType) -> object:
    return evaluate_cast(([text], TEXT), dtype, try_=True)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.", 1.0),
        (".5", 0.5),
        (" 1e3\n", 1000.0),
        ("+2d", 2.0),
        ("3F", 3.0),
        ("INF", math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
        ("", None),
        (".", None),
        ("1_0", None),
        ("e5", None),
        ("1 2", None),
        ("infin", None),
    ],
)
def test_doubles(text: str, expected: float | None) -> None:
    assert _read(text, DOUBLE) == expected


def test_nan_and_the_nearest_float() -> None:
    assert math.isnan(_read(" nAn ", DOUBLE))  # type: ignore[arg-type]
    near = "1.00000017881393432617187499"  # between two floats, nearer to the lower one; as a double, a tie
    assert _read(near, FLOAT) == pytest.approx(1.0000001192092896, abs=0)


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=None), scale=st.integers(0, 38))
def test_decimals_are_rounded_half_away_from_zero(number: Decimal, scale: int) -> None:
    dtype = pa.decimal128(38, scale)
    with localcontext() as context:
        context.prec = 5_000
        if abs(number.adjusted()) > 1_000:
            return
        expected = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        fits = abs(expected) < Decimal(10) ** (38 - scale)
    assert _read(str(number), dtype) == (expected if fits else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.995", "1.00"),
        ("-0.995", "-1.00"),
        ("0.9949999", "0.99"),
        ("99999.995", None),
        ("0000099999.994", "99999.99"),
        (".5", "0.50"),
        ("5.", "5.00"),
        (" 7 ", "7.00"),
        ("1e2", "100.00"),
        ("1E-3", "0.00"),
        ("5e-3", "0.01"),
        ("", None),
        (".", None),
        ("-", None),
        ("e3", None),
        ("1e", None),
        ("1e9999999", None),
        ("0e9999999", "0.00"),
    ],
)
def test_decimals_at_the_bounds(text: str, expected: str | None) -> None:
    assert _read(text, pa.decimal128(7, 2)) == (None if expected is None else Decimal(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020", date(2020, 1, 1)),
        ("2020-3", date(2020, 3, 1)),
        ("2020-03-5", date(2020, 3, 5)),
        ("+0001-01-01", date.min),
        ("2020-02-29 anything", date(2020, 2, 29)),
        (" 2020-02-29T\n", date(2020, 2, 29)),
        ("9999-12-31", date.max),
        ("2021-02-29", None),
        ("2020-13-01", None),
        ("2020-00-01", None),
        ("2020-01-00", None),
        ("202", None),
        ("2020-1-1x", None),
        ("2020-1-", None),
        ("2020/01/01", None),
        ("", None),
        ("2020-001-01", None),
        ("2020T", None),
    ],
)
def test_dates(text: str, expected: date | None) -> None:
    assert _read(text, DATE) == expected


_DAY = datetime(2020, 2, 29, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-02-29", _DAY),
        ("2020-02-29 1", _DAY.replace(hour=1)),
        ("2020-02-29T1:2", _DAY.replace(hour=1, minute=2)),
        ("2020-02-29 01:02:03.1", _DAY.replace(hour=1, minute=2, second=3, microsecond=100_000)),
        ("2020-02-29 01:02:03.123456789", _DAY.replace(hour=1, minute=2, second=3, microsecond=123_456)),
        ("2020-02-29 01:02:03.", _DAY.replace(hour=1, minute=2, second=3)),
        ("2020-02-29 23:00:00+23", None),
        ("2020-02-29 18:30:00+18:30", None),
        ("2020-02-29 05:30:00+05:30", _DAY),
        ("2020-02-29 05:30:00 +5:30", _DAY),
        ("2020-02-29 05:30:00.0UTC+05:30", _DAY),
        ("2020-02-28T18:29:59-05:30:01", _DAY),
        ("2020-02-29 00:00:00Z", _DAY),
        ("2020-02-29 00:00:00 GMT", _DAY),
        ("2020-02-29 24:00:00", None),
        ("2020-02-29 00:60:00", None),
        ("2020-02-29 00:00:60", None),
        ("2020-02-29 00:00Z", None),
        ("2020-02-29 ", _DAY),
        ("2020-02-29T", None),
        ("2020-02-30 00:00:00", None),
        ("2020-02-29x", None),
        ("nothing", None),
    ],
)
def test_timestamps(text: str, expected: datetime | None) -> None:
    assert _read(text, TIMESTAMP) == expected
    if text.endswith("+05:30"):
        assert _read(text, LOCAL_TIMESTAMP) == datetime(2020, 2, 29, 5, 30), "the zone is left out"


@pytest.mark.parametrize("text", ["12:30", "T12:30:00", "10000-01-01", "-0001-01-01", "0000-01-01 00:00:00"])
def test_times_that_have_a_value_in_spark_but_not_here_are_errors_of_try_cast_too(text: str) -> None:
    with pytest.raises(QueryError, match="the text is a time"):
        _read(text, TIMESTAMP)


def test_regions_are_refused_and_dates_outside_the_years() -> None:
    with pytest.raises(QueryError, match="region"):
        _read("2020-02-29 12:00:00 Europe/Oslo", TIMESTAMP)
    with pytest.raises(QueryError, match="years 1 to 9999"):
        _read("10000-01-01", DATE)
