from datetime import timedelta
from itertools import product

import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.expressions.arithmetic_types import ARITHMETIC
from upstream.expressions.kinds import DATE, DOUBLE, DURATION, INT, LONG, TIMESTAMP
from upstream.expressions.nodes import Constant, Field


def _type(function: str, *types: pa.DataType) -> pa.DataType:
    return ARITHMETIC[function](function, [Field(f"x{at}", dtype) for at, dtype in enumerate(types)]).type


@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide", "mod", "pmod"])
def test_no_decimal_exceeds_38_digits(function):
    sizes = [pa.decimal128(p, s) for p in (1, 6, 19, 37, 38) for s in (0, 1, 6, 37, 38) if s <= p]
    for one, two in product(sizes, sizes):
        found = _type(function, one, two)
        assert 0 <= found.scale <= found.precision <= 38


def test_rounding_may_need_a_digit_more_and_whole_numbers_stay():
    money = Field("m", pa.decimal128(3, 1))
    types = [ARITHMETIC["round"]("round", [money, Constant(at, INT)]).type for at in (0, 1, 5, -1, -6)]
    assert types == [pa.decimal128(p, s) for p, s in ((3, 0), (4, 1), (4, 1), (3, 0), (7, 0))]
    made = ARITHMETIC["ceil"]("ceil", [Field("i", INT)])
    assert str(made) == "cast(i AS BIGINT)"
    with pytest.raises(SchemaError, match="constant number of digits"):
        ARITHMETIC["round"]("round", [Field("d", DOUBLE), Field("i", INT)])


def test_intervals_add_to_times_and_to_intervals():
    assert _type("add", TIMESTAMP, DURATION) == TIMESTAMP
    assert _type("add", DATE, DURATION) == TIMESTAMP
    assert _type("add", DURATION, DURATION) == DURATION
    assert _type("multiply", DURATION, LONG) == DURATION
    assert _type("subtract", DATE, DATE) == DURATION
    for types in ((DURATION, INT), (DATE, DOUBLE), (DURATION, TIMESTAMP)):
        with pytest.raises(SchemaError):
            _type("subtract", *types)
    assert ARITHMETIC["negate"]("negate", [Constant(timedelta(1), DURATION)]).type == DURATION
