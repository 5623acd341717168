import math
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.expressions.numbers import rounded_doubles, rounded_integers

_TIES = st.builds(lambda whole, places: float(f"{whole}5e-{places}"), st.integers(-(10**6), 10**6), st.integers(0, 8))
_DOUBLES = _TIES | st.floats() | st.floats(-1e6, 1e6) | st.integers(-(10**16), 10**16).map(float)


def _expected(value: float, places: int, rule: str) -> float:
    if not math.isfinite(value):
        return value
    with localcontext() as context:
        context.prec = 1000
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), rule)) + 0.0


@pytest.mark.parametrize(("even", "rule"), [(False, ROUND_HALF_UP), (True, ROUND_HALF_EVEN)])
@given(values=st.lists(_DOUBLES, min_size=1), places=st.sampled_from([-25, -3, -1, 0, 1, 2, 3, 8, 15, 22, 23, 300]))
@example(values=[2.675, 0.5, 1.5, -2.5, -0.4, 1e14, 4503599627370497.5, 0.49999999999999994], places=0)
@example(values=[2.675, 1.005, 0.285, -1.115], places=2)
@example(values=[5.0, 15.0, 25.0, -35.0, 149.99999999999997], places=-1)
def test_doubles(even, rule, values, places):
    frame = pl.DataFrame({"x": [*values, None]}, schema={"x": pl.Float64})
    found = frame.select(rounded_doubles(pl.col("x"), places, even=even, single=False)).to_series().to_list()
    assert found.pop() is None
    for value, made in zip(values, found, strict=True):
        expected = _expected(value, places, rule)
        assert made == expected or (math.isnan(made) and math.isnan(expected)), (value, places)
        assert math.isnan(made) or math.copysign(1, made) == math.copysign(1, expected), (value, places)


def test_floats_are_rounded_as_the_doubles_that_they_are():
    frame = pl.DataFrame({"x": pl.Series([2.675, 0.125, -1.5], dtype=pl.Float32)})
    found = frame.select(rounded_doubles(pl.col("x"), 2, even=False, single=True)).to_series()
    assert found.dtype == pl.Float32
    assert [round(each, 3) for each in found] == [2.67, 0.13, -1.5], "2.675 as a FLOAT is 2.6749999"


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), places=st.integers(1, 40), even=st.booleans())
def test_whole_numbers(values, places, even):
    frame = pl.DataFrame({"x": pl.Series(values, dtype=pl.Int128)})
    found = frame.select(rounded_integers(pl.col("x"), places, even=even)).to_series().to_list()
    with localcontext() as context:
        context.prec = 60
        rule = ROUND_HALF_EVEN if even else ROUND_HALF_UP
        assert found == [int(Decimal(each).quantize(Decimal(1).scaleb(places), rule)) for each in values]
