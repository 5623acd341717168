import math
from datetime import date, datetime, timezone
from decimal import Decimal

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.expressions.kinds import DATE, LONG, TEXT, TIMESTAMP
from upstream.expressions.notation import text_of_double

from .values import evaluate, evaluate_cast


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
