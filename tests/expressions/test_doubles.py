import math

import pytest

from upstream.expressions.kinds import DOUBLE, INT, LONG
from upstream.expressions.types import call

from .values import evaluate

_NAN, _INF = math.nan, math.inf
_EDGES = (0.0, -0.0, 1.0, -1.0, _INF, -_INF, _NAN, None)


def _same(found: list[float | None], expected: list[float | None]) -> bool:
    return str(found) == str(expected)  # NaN is not equal to itself, and -0.0 is equal to 0.0


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("cbrt", [27.0, -8.0, None], [3.0, -2.0, None]),
        ("rint", [2.5, 3.5, -0.4], [2.0, 4.0, -0.0]),
        ("acos", [2.0, 1.0], [_NAN, 0.0]),
        ("degrees", [math.pi], [180.0]),
        ("log1p", [-1.0, -2.0, 0.0, _NAN], [None, None, 0.0, _NAN]),
        ("log", [0.0, -1.0, 1.0, _INF], [None, None, 0.0, _INF]),
        ("cot", [0.0], [_INF]),
    ],
)
def test_of_one_number(name, given, expected):
    assert _same(evaluate(name, (given, DOUBLE)), expected)


def test_of_two_numbers_and_of_none():
    assert evaluate("log", ([2.0, 0.0, 2.0], DOUBLE), ([8.0, 8.0, 0.0], DOUBLE)) == [3.0, None, None]
    assert evaluate("factorial", ([0, 20, 21, -1, None], INT)) == [1, math.factorial(20), None, None, None]
    assert str(call("pi", [])) == "3.141592653589793"
    grid = [(y, x) for y in _EDGES for x in _EDGES]
    ys, xs = zip(*grid, strict=True)
    for (y, x), found in zip(grid, evaluate("atan2", (ys, DOUBLE), (xs, DOUBLE)), strict=True):
        if y is None or x is None:
            assert found is None
            continue
        expected = math.atan2(y + 0.0, x + 0.0)  # as Spark calls Java's
        assert repr(found) == repr(expected), (y, x)
    assert evaluate("hypot", ([3.0], DOUBLE), ([4.0], DOUBLE)) == [5.0]
    assert evaluate("nanvl", ([_NAN, 1.0, None], DOUBLE), ([2.0, 2.0, 2.0], DOUBLE)) == [2.0, 1.0, None]


def test_width_bucket():
    values, low = [5.0, -1.0, 10.0, 5.0, 11.0, 5.0, 5.0, _NAN], [0.0, 0.0, 0.0, 10.0, 10.0, 1.0, 0.0, 0.0]
    high, counts = [10.0, 10.0, 10.0, 0.0, 0.0, 1.0, 10.0, 10.0], [4, 4, 4, 4, 4, 4, 0, 4]
    found = evaluate("width_bucket", (values, DOUBLE), (low, DOUBLE), (high, DOUBLE), (counts, LONG))
    assert found == [3, 0, 5, 3, 0, None, None, None]
