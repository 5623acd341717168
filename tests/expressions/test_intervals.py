"""Intervals of days and time, beside Python's exact fractions."""

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.conf.errors import SchemaError
from upstream.expressions.intervals import part_of
from upstream.expressions.kinds import BYTE, DOUBLE, DURATION, INT, LONG, MONTHS
from upstream.expressions.nodes import Constant, Field
from upstream.expressions.types import call

from .values import evaluate, fields, run

_US = timedelta(microseconds=1)
_MICROS = st.integers(-(10**14), 10**14)
_NUMBERS = {
    LONG: st.integers(-(10**4), 10**4),
    pa.decimal128(9, 4): st.decimals(-9999, 9999, places=4, allow_nan=False),
    DOUBLE: st.floats(-1e4, 1e4).filter(lambda each: each == 0 or abs(each) > 1e-3),
}


def half_up(value: Fraction) -> int:
    """Round half away from zero, as Spark does."""
    size = math.floor(abs(value) + Fraction(1, 2))
    return -size if value < 0 else size


@pytest.mark.parametrize("kind", _NUMBERS, ids=str)
@given(micros=_MICROS, data=st.data())
def test_an_interval_times_or_by_a_number_is_rounded_half_up(kind, micros, data):
    number = data.draw(_NUMBERS[kind])
    assume(number != 0)
    given_ = ([micros * _US, None], DURATION), ([number, number], kind)
    exact = kind != DOUBLE
    # Spark multiplies doubles, and rounds their product.
    for function, value in (
        ("multiply", Fraction(micros) * Fraction(number) if exact else Fraction(float(micros) * number)),
        ("divide", Fraction(micros) / Fraction(number) if exact else Fraction(float(micros) / number)),
    ):
        assert evaluate(function, *given_) == [half_up(value) * _US, None]


def test_products_that_do_not_fit_and_quotients_by_zero_fail():
    long = [timedelta(days=10**8)], DURATION
    fails("does not fit", evaluate, "multiply", long, ([10**4], LONG))
    fails("does not fit", evaluate, "multiply", long, ([1e10], DOUBLE))
    fails("does not fit", evaluate, "multiply", long, ([math.nan], DOUBLE))
    for zero, kind in ((0, INT), (0.0, DOUBLE), (Decimal(0), pa.decimal128(3, 1))):
        fails("division by zero", evaluate, "divide", long, ([zero], kind))
        assert evaluate("divide", ([None], DURATION), ([zero], kind)) == [None]
        assert evaluate("try_divide", long, ([zero], kind)) == [None]
    assert evaluate("abs", ([-1 * _US, 2 * _US, None], DURATION)) == [_US, 2 * _US, None]
    fails("at most 18 digits", evaluate, "multiply", long, ([Decimal(1)], pa.decimal128(19, 0)), error=SchemaError)
    fails("by a number", evaluate, "divide", long, long, error=SchemaError)


def test_an_interval_has_days_hours_minutes_and_seconds():
    (value,), rows, schema = fields(
        ([-timedelta(hours=26, seconds=1.5), timedelta(days=3, minutes=62), None], DURATION)
    )
    expected = {"DAY": ([-1, 3], INT), "HOURS": ([-2, 1], BYTE), "minute": ([0, 2], BYTE)}
    expected["second"] = [Decimal("-1.500000"), Decimal("0.000000")], pa.decimal128(8, 6)
    for name, (numbers, kind) in expected.items():
        part = part_of(name, value)
        assert part.type == kind
        assert run(part, rows, schema) == [*numbers, None]
    fails("has no month", part_of, "MONTH", value, error=SchemaError)


def test_make_dt_interval_adds_its_parts():
    parts = ([1, None], INT), ([-2, 0], INT), ([90, 0], INT), ([Decimal("4.5"), Decimal(0)], pa.decimal128(18, 6))
    assert evaluate("make_dt_interval", *parts) == [timedelta(days=1, hours=-2, minutes=90, seconds=4.5), None]
    assert evaluate("make_dt_interval", ([3], INT)) == [timedelta(days=3)]
    with pytest.raises(SchemaError, match=r"\[days\[, hours"):
        call("make_dt_interval", [Constant(1, INT)] * 5)
    fails("does not fit", evaluate, "make_dt_interval", ([2**31 - 1], INT))


def test_constant_intervals_of_months_are_added_and_multiplied():
    month, year = (Constant((months, 0, 0), MONTHS) for months in (1, 12))
    three = Constant(3, INT)
    for function, operands, months in (
        ("add", [month, year], 13),
        ("subtract", [month, year], -11),
        ("multiply", [three, month], 3),
        ("multiply", [year, three], 36),
        ("negate", [year], -12),
        ("make_ym_interval", [three, three], 39),
        ("make_ym_interval", [], 0),
    ):
        assert call(function, operands) == Constant((months, 0, 0), MONTHS)
    fails("longer than", call, "multiply", [year, Constant(2**31 - 1, INT)], error=SchemaError)
    fails("add_months", call, "make_ym_interval", [Field("n", INT)], error=SchemaError)
    fails("multiply does not take", call, "multiply", [month, Field("n", INT)], error=SchemaError)
