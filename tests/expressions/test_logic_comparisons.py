import math
import operator
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from upstream.expressions.kinds import BOOLEAN, DOUBLE, INT, TEXT

from .values import evaluate

_NAN, _INF = float("nan"), float("inf")
_DOUBLES = [_NAN, _INF, 1.0, 0.0, -0.0, -1.0, -_INF]


def _rank(value: float) -> float:
    return 10.0 if math.isnan(value) else 5.0 if value == _INF else -5.0 if value == -_INF else value


def test_nan_is_the_greatest_and_equal_to_itself_and_zeros_are_equal():
    pairs = list(product(_DOUBLES, _DOUBLES))
    columns = ([a for a, _ in pairs], DOUBLE), ([b for _, b in pairs], DOUBLE)
    ranks = [(_rank(a), _rank(b)) for a, b in pairs]
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert evaluate(compare.__name__, *columns) == [compare(a, b) for a, b in ranks]
    assert [_rank(each) for each in evaluate("greatest", *columns)] == [max(pair) for pair in ranks]
    assert [_rank(each) for each in evaluate("least", *columns)] == [min(pair) for pair in ranks]
    nan = [([_NAN], DOUBLE)]
    assert evaluate("eq", ([_NAN, 1.0, None], DOUBLE), constants=nan) == [True, False, None]
    assert evaluate("lt", ([_NAN, _INF, None], DOUBLE), constants=nan) == [False, True, None]


def test_text_is_compared_by_its_bytes():
    words = ["", "a", "B", "b", "é", "日", "😀", "a\x00"]
    pairs = list(product(words, words))
    found = evaluate("lt", ([a for a, _ in pairs], TEXT), ([b for _, b in pairs], TEXT))
    assert found == [a.encode() < b.encode() for a, b in pairs]


def test_null_and_null_are_equal_only_for_the_null_safe_one():
    columns = ([1, None, None, 2], INT), ([1, 1, None, 3], INT)
    assert evaluate("eq", *columns) == [True, None, None, False]
    assert evaluate("eq_null_safe", *columns) == [True, False, True, False]
    assert evaluate("is_null", columns[0]) == [False, True, True, False]
    assert evaluate("is_not_null", columns[0]) == [True, False, False, True]
    assert evaluate("isnan", ([_NAN, 1.0, None], DOUBLE)) == [True, False, False]
    assert evaluate("eq", ([True, None], BOOLEAN), ([True, True], BOOLEAN)) == [True, None]


@pytest.mark.parametrize("function", ["greatest", "least"])
def test_the_extreme_leaves_nulls_out(function):
    found = evaluate(function, ([None, 1, None], INT), ([2, None, None], INT), ([None, 1, None], INT))
    assert found == [2, 1, None]


def test_numbers_of_two_types_are_compared_exactly():
    assert evaluate("gt", (["10", " 9 ", None], TEXT), ([9, 9, 9], INT)) == [True, False, None]
    half = ([Decimal("2.50")], pa.decimal128(3, 2))
    assert evaluate("lt", ([2, 3, None], INT), constants=[half]) == [True, False, None]
