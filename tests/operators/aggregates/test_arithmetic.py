"""Limbs are integers, pairs are doubles of twice the digits: against Python's own integers and fractions."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates import exact, floats
from upstream.operators.aggregates.groups import Groups

from .oracle import DECIMALS

WIDE, LONG = pa.decimal256(76, 0), pa.decimal128(38, 0)


def integers(limbs):
    return [sum(int(limb[row]) << 32 * place for place, limb in enumerate(limbs)) for row in range(len(limbs[0]))]


def unscaled(array):
    return [int(value.scaleb(array.type.scale, DECIMALS)) for value in array.to_pylist()]


def decimals(values, kind):
    return pa.array([Decimal(value) for value in values], kind)


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=20))
def test_decimals_become_limbs_and_decimals_again(values):
    array = decimals(values, LONG)
    assert integers(exact.limbs_of(array)) == values
    assert unscaled(exact.packed(exact.limbs_of(array), WIDE)) == values
    assert unscaled(exact.packed(exact.limbs_of(array.slice(1)), LONG)) == values[1:]


@given(st.lists(st.tuples(st.integers(-(10**70), 10**70), st.integers(1, 2**31 - 1)), min_size=1, max_size=20))
def test_division_rounds_half_away_from_zero(pairs):
    values = [value for value, _ in pairs]
    found = exact.divided(exact.limbs_of(decimals(values, WIDE)), 10_000, np.array([divisor for _, divisor in pairs]))

    def divided(value, divisor):
        size = (2 * abs(value) * 10_000 + divisor) // (2 * divisor)
        return size if value >= 0 else -size

    assert unscaled(exact.packed(found, WIDE)) == [divided(*pair) for pair in pairs]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_limbs_as_doubles(values):
    array = exact.packed(exact.limbs_of(pa.array(values, pa.int64())), LONG)
    assert exact.doubles(exact.limbs_of(array)).tolist() == [float(value) for value in values]
    many = exact.packed([limb * 1000 for limb in exact.limbs_of(array)], LONG)
    assert exact.doubles(exact.limbs_of(many)).tolist() == pytest.approx(
        [float(value * 1000) for value in values], rel=1e-15
    )


@pytest.mark.parametrize("value", [2**62 - 1, -(2**62) + 1, 2**33 - 1])
def test_more_rows_than_doubles_can_add(value):
    rows = 2_500_000  # of 32 bits each, beyond 2^53
    found = exact.summed(pa.array(np.full(rows, value)), Groups(np.zeros(rows, dtype=np.int64), 1))
    assert integers(found) == [rows * value]


_NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=False)


@given(st.lists(st.tuples(st.integers(0, 2), _NUMBERS), min_size=1, max_size=60))
def test_sums_have_a_hundred_bits(rows):
    codes = np.array([code for code, _ in rows])
    high, low = floats.summed(np.array([number for _, number in rows]), Groups(codes, 4))
    for group in range(4):
        mine = [Fraction(number) for code, number in rows if code == group]
        error = abs(Fraction(high[group]) + Fraction(low[group]) - sum(mine))
        assert error <= Fraction(2) ** -95 * max(map(abs, mine), default=0) + Fraction(5e-324)
        assert high[group] == high[group] + low[group]


_PAIRS = st.tuples(st.floats(-1e50, 1e50), st.floats(-1e30, 1e30)).map(lambda pair: (sum(pair), pair[1] * 2.0**-60))


@given(_PAIRS, _PAIRS, st.integers(1, 2**40))
def test_arithmetic_of_pairs(left, right, divisor):
    left, right = ((np.array([high + low]), np.array([low - ((high + low) - high)])) for high, low in (left, right))

    def value(pair):
        return Fraction(float(pair[0][0])) + Fraction(float(pair[1][0]))

    a, b, tiny = value(left), value(right), Fraction(1e-300)
    assert abs(value(floats.plus(left, right)) - (a + b)) <= Fraction(2) ** -100 * max(abs(a), abs(b)) + tiny
    assert abs(value(floats.minus(left, right)) - (a - b)) <= Fraction(2) ** -100 * max(abs(a), abs(b)) + tiny
    assert abs(value(floats.times(left, right)) - a * b) <= Fraction(2) ** -98 * abs(a * b) + tiny
    quotient = floats.over(left, np.array([float(divisor)]))
    assert abs(value(quotient) - a / divisor) <= Fraction(2) ** -98 * abs(a / divisor) + tiny
    square = floats.squares(left[0])
    assert abs(value(square) - Fraction(float(left[0][0])) ** 2) <= tiny
