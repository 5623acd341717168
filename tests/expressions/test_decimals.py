from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from operator import add, mod, mul, sub, truediv

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.conf.errors import QueryError
from upstream.expressions.decimals import LIMIT, scaled
from upstream.expressions.kinds import INT, LONG
from upstream.expressions.nodes import Field
from upstream.expressions.types import call

from .values import evaluate

_TYPES = [(5, 2), (10, 0), (18, 6), (38, 18), (38, 0), (38, 37), (3, 3)]


@st.composite
def _decimals(draw: st.DrawFn) -> tuple[Decimal, pa.Decimal128Type]:
    precision, scale = draw(st.sampled_from(_TYPES))
    digits = draw(st.integers(1, precision))
    most = 10**digits - 1
    number = draw(st.sampled_from([most, -most, 0, 1, -1, min(5, most)]) | st.integers(-most, most))
    with localcontext() as context:
        context.prec = 60
        return Decimal(number).scaleb(-scale), pa.decimal128(precision, scale)


def _long(number: str) -> tuple[Decimal, pa.Decimal128Type]:
    """A number of which Spark rounds the product or the quotient once: by way of 38 digits it would be another."""
    return Decimal(number), pa.decimal128(38, 18)


_EXACT = {"add": add, "subtract": sub, "multiply": mul, "divide": truediv, "mod": mod}


@pytest.mark.parametrize("function", sorted(_EXACT))
@given(pairs=st.lists(st.tuples(_decimals(), _decimals()), min_size=1, max_size=3))
@example(pairs=[(_long("33333334166666666666.666666666666666665"), _long("0.000000000000000003"))])
@example(pairs=[(_long("250000125000000.000000000000000001"), _long("250000000000000.000000000000000001"))])
@example(pairs=[(_long("3000001500000000.000000000000000001"), _long("3000000000000000.000000000000000001"))])
def test_results_are_exact_and_rounded_half_away_from_zero(function, pairs):
    for (a, one), (b, two) in pairs:
        if b == 0 and function in ("divide", "mod"):
            fails("division by zero", evaluate, function, ([a], one), ([b], two))
            continue
        dtype = call(function, [Field("a", one), Field("b", two)]).type
        with localcontext() as context:
            context.prec = 200
            expected = _EXACT[function](a, b).quantize(Decimal(1).scaleb(-dtype.scale), ROUND_HALF_UP)
            fits = abs(expected) < Decimal(10) ** (dtype.precision - dtype.scale)
            fits &= function != "mod" or len(str(int(abs(a / b))).rstrip("0")) <= 38  # Java gives up
        found = evaluate(f"try_{function}", ([a], one), ([b], two))
        assert found == [expected if fits else None]
        if not fits:
            fails("more digits", evaluate, function, ([a], one), ([b], two))


def test_columns_of_small_and_of_very_many_digits_are_right_side_by_side():
    dtype = pa.decimal128(38, 18)
    values = [Decimal("1.5"), Decimal("12345678901234567890.5"), None, Decimal(-2)]
    found = evaluate("multiply", (values, dtype), ([Decimal(2)] * 4, dtype))
    assert found == [Decimal(3), Decimal(24691357802469135781), None, Decimal(-4)]


def test_whole_division_goes_towards_zero_and_pmod_is_not_negative():
    dtype = pa.decimal128(5, 2)
    values = [Decimal(v) for v in ("7.50", "-7.50", "0.99", "-999.99")]
    assert evaluate("div", (values, dtype), ([Decimal("2.00")] * 4, dtype)) == [3, -3, 0, -499]
    assert evaluate("pmod", (values[:2], dtype), ([Decimal("2.00")] * 2, dtype)) == [Decimal("1.50"), Decimal("0.50")]
    fails("fits no BIGINT", evaluate, "div", ([Decimal("9" * 38)], pa.decimal128(38, 0)), ([1], LONG))
    most = ([Decimal("9" * 37 + "1")], pa.decimal128(38, 0))
    assert evaluate("mod", most, ([Decimal("0.5")], pa.decimal128(1, 1))) == [Decimal("0.0")]
    assert evaluate("pmod", most, ([Decimal("0.5")], pa.decimal128(1, 1))) == [Decimal("0.0")]
    fails("more digits", evaluate, "mod", most, ([Decimal("0.03")], pa.decimal128(2, 2)))


@given(value=_decimals(), places=st.integers(-5, 20))
def test_round_and_bround(value, places):
    number, dtype = value
    for function, rule in (("round", ROUND_HALF_UP), ("bround", ROUND_HALF_EVEN)):
        with localcontext() as context:
            context.prec = 100
            expected = number.quantize(Decimal(1).scaleb(-min(places, dtype.scale)), rule)
        if abs(expected) < Decimal(10) ** 38:
            try:
                assert evaluate(function, ([number], dtype), constants=[([places], INT)]) == [expected]
            except QueryError:
                assert abs(expected) >= Decimal(10) ** 37, "a digit more than the type has"


@given(value=_decimals())
@example(value=(Decimal(12345678901234567890123456789012345678), pa.decimal128(38, 0)))
@example(value=(Decimal(-12345678901234567890123456789012345678), pa.decimal128(38, 0)))
@example(value=(Decimal("9" * 38), pa.decimal128(38, 0)))
@example(value=(Decimal("-" + "9" * 38), pa.decimal128(38, 0)))
def test_floor_ceil_and_size(value):
    number, dtype = value
    with localcontext() as context:
        context.prec = 100
        assert evaluate("floor", ([number], dtype)) == [number.to_integral_value(ROUND_FLOOR)]
        assert evaluate("ceil", ([number], dtype)) == [number.to_integral_value(ROUND_CEILING)]
    with localcontext() as context:
        context.prec = 34  # to which Java rounds a minus
        minus = -number
    for name, expected in (("negate", minus), ("abs", minus if number < 0 else number)):
        if expected.copy_abs() < Decimal(f"1e{dtype.precision - dtype.scale}"):
            assert evaluate(name, ([number, None], dtype)) == [expected, None]
        else:
            fails("too many digits", evaluate, name, ([number, None], dtype))


@given(
    numbers=st.lists(st.none() | st.sampled_from([0, LIMIT - 1, 1 - LIMIT]) | st.integers(1 - LIMIT, LIMIT - 1)),
    digits=st.integers(0, 40),
)
def test_scaled_is_exact_or_null(numbers, digits):
    most = (1 << 127) - 1
    exact = [None if each is None else each * 10**digits for each in numbers]
    expected = [None if each is None or abs(each) > most // 10**digits * 10**digits else each for each in exact]
    frame = pl.DataFrame({"x": pl.Series(numbers, dtype=pl.Int128)})
    assert frame.select(scaled(pl.col("x"), digits)).to_series().to_list() == expected
