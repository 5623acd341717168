import math
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.expressions.kinds import DATE, DOUBLE, FLOAT, LOCAL_TIMESTAMP, LONG, TEXT, TIMESTAMP
from upstream.expressions.notation import text_of_double

from .values import evaluate, evaluate_cast


def _all(texts: Sequence[str], dtype: pa.DataType) -> list[object]:
    return evaluate_cast((texts, TEXT), dtype, try_=True)


def _read(text: str, dtype: pa.DataType) -> object:
    return _all([text], dtype)[0]


def test_doubles():
    texts = ["1.", ".5", " 1e3\n", "+2d", "3F", "INF", "-Infinity", "1e400"]
    assert _all(texts, DOUBLE) == [1.0, 0.5, 1000.0, 2.0, 3.0, math.inf, -math.inf, math.inf]
    assert _all(["", ".", "1_0", "e5", "1 2", "infin"], DOUBLE) == [None] * 6


def test_nan_and_the_nearest_float():
    assert math.isnan(_read(" nAn ", DOUBLE))  # type: ignore[arg-type]
    near = "1.00000017881393432617187499"  # between two floats, nearer to the lower one; as a double, a tie
    assert _read(near, FLOAT) == pytest.approx(1.0000001192092896, abs=0)


@given(number=st.decimals(allow_nan=False, allow_infinity=False, places=None), scale=st.integers(0, 38))
def test_decimals_are_rounded_half_away_from_zero(number, scale):
    dtype = pa.decimal128(38, scale)
    with localcontext() as context:
        context.prec = 5_000
        if abs(number.adjusted()) > 1_000:
            return
        expected = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        fits = abs(expected) < Decimal(10) ** (38 - scale)
    assert _read(str(number), dtype) == (expected if fits else None)


def test_decimals_at_the_bounds():
    dtype = pa.decimal128(7, 2)
    texts = ["0.995", "-0.995", "0.9949999", "0000099999.994", ".5", "5.", " 7 ", "1e2", "1E-3", "5e-3", "0e9999999"]
    rounded = ["1.00", "-1.00", "0.99", "99999.99", "0.50", "5.00", "7.00", "100.00", "0.00", "0.01", "0.00"]
    assert _all(texts, dtype) == [*map(Decimal, rounded)]
    assert _all(["99999.995", "", ".", "-", "e3", "1e", "1e9999999"], dtype) == [None] * 7


def test_dates():
    days = ["2020-02-29", "2020-02-29 anything", " 2020-02-29T\n", "2020", "2020-3", "2020-03-5"]
    assert _all(days, DATE) == [*[date(2020, 2, 29)] * 3, date(2020, 1, 1), date(2020, 3, 1), date(2020, 3, 5)]
    assert _all(["+0001-01-01", "9999-12-31"], DATE) == [date.min, date.max]
    not_in_the_calendar = ["2021-02-29", "2020-13-01", "2020-00-01", "2020-01-00"]
    of_no_form = ["202", "2020-1-1x", "2020-1-", "2020/01/01", "", "2020-001-01", "2020T"]
    assert _all([*not_in_the_calendar, *of_no_form], DATE) == [None] * 11


_DAY = datetime(2020, 2, 29, tzinfo=timezone.utc)


def test_timestamps():
    for text, expected in (
        ("1", _DAY.replace(hour=1)),
        ("1:2", _DAY.replace(hour=1, minute=2)),
        ("01:02:03.1", _DAY.replace(hour=1, minute=2, second=3, microsecond=100_000)),
        ("01:02:03.123456789", _DAY.replace(hour=1, minute=2, second=3, microsecond=123_456)),
        ("01:02:03.", _DAY.replace(hour=1, minute=2, second=3)),
    ):
        assert _all([f"2020-02-29 {text}", f"2020-02-29T{text}"], TIMESTAMP) == [expected] * 2
    zoned = ["05:30:00+05:30", "05:30:00 +5:30", "05:30:00.0UTC+05:30", "00:00:00Z", "00:00:00 GMT", ""]
    assert _all(["2020-02-29", *(f"2020-02-29 {each}" for each in zoned)], TIMESTAMP) == [_DAY] * 7
    assert _read("2020-02-28T18:29:59-05:30:01", TIMESTAMP) == _DAY
    assert _read("2020-02-29 05:30:00+05:30", LOCAL_TIMESTAMP) == datetime(2020, 2, 29, 5, 30), "the zone is left out"
    wrong = ["23:00:00+23", "18:30:00+18:30", "24:00:00", "00:60:00", "00:00:60", "00:00Z"]
    assert _all([f"2020-02-29 {each}" for each in wrong], TIMESTAMP) == [None] * 6
    assert _all(["2020-02-29T", "2020-02-30 00:00:00", "2020-02-29x", "nothing"], TIMESTAMP) == [None] * 4


@pytest.mark.parametrize("text", ["12:30", "T12:30:00", "10000-01-01", "-0001-01-01", "0000-01-01 00:00:00"])
def test_times_that_have_a_value_in_spark_but_not_here_are_errors_of_try_cast_too(text):
    fails("the text is a time", _read, text, TIMESTAMP)


def test_regions_are_refused_and_dates_outside_the_years():
    fails("region", _read, "2020-02-29 12:00:00 Europe/Oslo", TIMESTAMP)
    fails("years 1 to 9999", _read, "10000-01-01", DATE)


def test_floating_point_numbers_have_the_fewest_digits():
    values = [0.0, -0.0, 0.001, 0.0009999, 9999999.0, 10000000.0, 5e-324, math.inf, -math.inf, math.nan]
    texts = ["0.0", "-0.0", "0.001", "9.999E-4", "9999999.0", "1.0E7", "4.9E-324", "Infinity", "-Infinity", "NaN"]
    assert text_of_double(pl.Series(values)).to_list() == texts
    values = pl.Series([0.1, 1e10, 1.4e-45, 3.4028235e38, None], dtype=pl.Float32)
    assert text_of_double(values).to_list() == ["0.1", "1.0E10", "1.4E-45", "3.4028235E38", None]


@given(values=st.lists(st.none() | st.floats(allow_nan=False), min_size=1))
def test_each_double_is_read_back_from_its_text(values):
    texts = text_of_double(pl.Series(values, dtype=pl.Float64)).to_list()
    for value, text in zip(values, texts, strict=True):
        if value is None or text is None:
            assert (value, text) == (None, None)
            continue
        assert float(text) == value
        assert math.copysign(1, float(text)) == math.copysign(1, value)
        assert ("E" not in text) == (value == 0 or 1e-3 <= abs(value) < 1e7 or math.isinf(value))
        if math.isfinite(value) and abs(value) > 1e-300:
            digits = [Decimal(each).normalize().as_tuple().digits for each in (text, repr(value))]
            assert digits[0] == digits[1], "the fewest digits"


def test_times():
    utc = timezone.utc
    times = [datetime(1, 1, 1, tzinfo=utc), datetime(2020, 1, 2, 3, 4, 5, 120_000, utc), None]
    times += [datetime(1969, 12, 31, 23, 59, 59, 1, utc), datetime(2020, 1, 2, 3, 0, 0, tzinfo=utc)]
    texts = ["0001-01-01 00:00:00", "2020-01-02 03:04:05.12", None, "1969-12-31 23:59:59.000001", "2020-01-02 03:00:00"]
    assert evaluate_cast((times, TIMESTAMP), TEXT) == texts
    assert evaluate_cast(([date.min, date.max, None], DATE), TEXT) == ["0001-01-01", "9999-12-31", None]
    assert evaluate("from_unixtime", ([-1, None], LONG)) == ["1969-12-31 23:59:59", None]
    fails("years 1 to 9999", evaluate_cast, ([2**62], TIMESTAMP), TEXT)
    fails("years 1 to 9999", evaluate_cast, ([2**31 - 1], DATE), TEXT)
