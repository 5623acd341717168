import math
import operator
from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.conf.errors import QueryError
from upstream.expressions.arithmetic_types import added
from upstream.expressions.kinds import BYTE, DOUBLE, FLOAT, INT, LONG, SHORT
from upstream.expressions.nodes import Call, Constant
from upstream.expressions.types import call

from .values import evaluate, fields, run

_NAN, _INF = float("nan"), float("inf")


def _truncated(left: int, right: int) -> int:
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


_EXACT: dict[str, Callable[[int, int], int | None]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "mod": lambda a, b: None if b == 0 else a - b * _truncated(a, b),
    "div": lambda a, b: None if b == 0 else _truncated(a, b),
}


def _integers(dtype: pa.DataType) -> st.SearchStrategy[int]:
    most = (1 << (dtype.bit_width - 1)) - 1
    edges = st.sampled_from([most, -most - 1, most - 1, 0, 1, -1, 2, -2])
    return edges | st.integers(-most - 1, most)


@pytest.mark.parametrize("dtype", [BYTE, SHORT, INT, LONG], ids=str)
@pytest.mark.parametrize("function", sorted(_EXACT))
@given(data=st.data())
def test_whole_numbers_are_exact_or_an_error(function, dtype, data):
    pairs = data.draw(st.lists(st.tuples(_integers(dtype), _integers(dtype)), min_size=1, max_size=8))
    result = LONG if function == "div" else dtype
    most = (1 << (result.bit_width - 1)) - 1
    expected = [_EXACT[function](a, b) for a, b in pairs]
    fits = [each is not None and -most - 1 <= each <= most for each in expected]
    kept = [pair for pair, fit in zip(pairs, fits, strict=True) if fit]
    if kept:
        columns = ([a for a, _ in kept], dtype), ([b for _, b in kept], dtype)
        found = evaluate(function, *columns)
        assert found == [each for each, fit in zip(expected, fits, strict=True) if fit]
    for (a, b), fit in zip(pairs, fits, strict=True):
        if not fit:
            fails("division by zero" if b == 0 else "does not fit", evaluate, function, ([a], dtype), ([b], dtype))
            if function != "div":
                assert evaluate(f"try_{function}", ([a], dtype), ([b], dtype)) == [None]


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("function", ["divide", "mod", "pmod"])
def test_doubles_are_not_divided_by_zero(function, zero):
    fails("division by zero", evaluate, function, ([1.0], DOUBLE), ([zero], DOUBLE))
    assert evaluate("try_divide", ([1.0], DOUBLE), ([zero], DOUBLE)) == [None]


def test_remainders_have_the_sign_of_the_dividend():
    columns = ([-7.5, 7.5, -7.0, _INF], DOUBLE), ([2.0, -2.0, 7.0, 2.0], DOUBLE)
    found = evaluate("mod", *columns)
    assert found[:3] == [-1.5, 1.5, 0.0]
    assert math.copysign(1, found[2]) == -1
    assert math.isnan(found[3])
    assert evaluate("pmod", ([-7, 7, -7], INT), ([3, -3, -3], INT)) == [2, 1, -1]
    assert evaluate("pmod", ([-1], LONG), ([-(2**63)], LONG)) == [2**63 - 1], "Java's sum wraps around"
    assert evaluate("add", ([None, 2**31 - 1], INT), ([1, None], INT)) == [None, None]
    assert evaluate("divide", ([None, 1.0], DOUBLE), ([0.0, None], DOUBLE)) == [None, None]
    assert evaluate("mod", ([None], INT), ([0], INT)) == [None]


def test_sizes_overflow_and_the_floor_of_a_double_is_what_javas_cast_gives():
    for function in ("negate", "abs"):
        assert evaluate(function, ([-127, None], BYTE)) == [127, None]
        fails("does not fit", evaluate, function, ([-128], BYTE))
        fails("does not fit", evaluate, function, ([-(2**63)], LONG))
    assert math.copysign(1, evaluate("negate", ([0.0], DOUBLE))[0]) == -1
    values = [1.5, -1.5, _NAN, _INF, -_INF, 2.0**63, -(2.0**63), 1e300, None, -0.5]
    most, least = 2**63 - 1, -(2**63)
    assert evaluate("floor", (values, DOUBLE)) == [1, -2, 0, most, least, most, least, most, None, -1]
    assert evaluate("ceil", (values, DOUBLE)) == [2, -1, 0, most, least, most, least, most, None, 0]


def test_round_of_whole_numbers_goes_away_from_zero_or_to_the_even_ten():
    values = [15, 25, -15, -25, 14, None]
    assert evaluate("round", (values, INT), constants=[([-1], INT)]) == [20, 30, -20, -30, 10, None]
    assert evaluate("bround", (values, INT), constants=[([-1], INT)]) == [20, 20, -20, -20, 10, None]
    assert evaluate("round", (values, INT), constants=[([-3], INT)]) == [0, 0, 0, 0, 0, None]
    fails("does not fit", evaluate, "round", ([127], BYTE), constants=[([-1], INT)])


def test_functions_of_doubles_at_their_edges():
    assert evaluate("sign", ([-3.5, 2.0, None], DOUBLE)) == [-1.0, 1.0, None]
    assert math.copysign(1, evaluate("sign", ([-0.0], DOUBLE))[0]) == -1
    assert evaluate("ln", ([1.0, 0.0, -1.0, None], DOUBLE)) == [0.0, None, None, None]
    assert evaluate("log10", ([1000.0, 0.0], DOUBLE)) == [3.0, None]
    assert evaluate("log2", ([8.0], DOUBLE)) == [3.0]
    assert math.isnan(evaluate("sqrt", ([-1.0], DOUBLE))[0])
    assert evaluate("power", ([2.0, 0.0], DOUBLE), ([10.0, 0.0], DOUBLE)) == [1024.0, 1.0]
    assert math.isnan(evaluate("power", ([1.0], DOUBLE), ([_INF], DOUBLE))[0]), "C's is 1"
    assert evaluate("exp", ([0.0, None], DOUBLE)) == [1.0, None]
    assert evaluate("multiply", ([3e38], FLOAT), ([10.0], FLOAT)) == [_INF]


@pytest.mark.parametrize("function", ["add", "sub", "mul"])
@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
@pytest.mark.parametrize("constant", [0.0, -0.0, 1.0])
def test_zeros_beside_constants_have_their_sign(function, dtype, constant):
    values, name = [0.0, -0.0, 1.5, None], {"sub": "subtract", "mul": "multiply"}.get(function, function)
    (column,), frame, schema = fields((values, dtype))
    operation: Callable[[float, float], float] = getattr(operator, function)
    fixed = Constant(constant, dtype)
    expected = [[operation(each, constant), operation(constant, each)] for each in values if each is not None]
    right, left = (run(call(name, pair), frame, schema) for pair in ((column, fixed), (fixed, column)))
    assert [repr([*each]) for each in zip(right, left, strict=True)] == [*map(repr, expected), repr([None, None])]


@pytest.mark.parametrize("dtype", [INT, LONG, DOUBLE], ids=str)
@given(data=st.data())
def test_many_are_added_from_left_to_right(dtype, data):
    values = st.floats(allow_nan=False) if dtype == DOUBLE else _integers(dtype)
    row = data.draw(st.lists(st.none() | values if data.draw(st.booleans()) else values, min_size=3, max_size=7))
    columns, *rows = fields(*(([each], dtype) for each in row))
    nested = reduce(lambda one, other: call("add", [one, other]), columns)
    flat = reduce(lambda one, other: added(call("add", [one, other])), columns)
    assert isinstance(flat, Call)
    assert (flat.function, len(flat.arguments)) == ("add_all", len(row))
    results: list[object] = []
    for each in (flat, nested):
        try:
            results.append(run(each, *rows))
        except QueryError as error:
            results.append(error.problem.partition("where")[2])
    assert repr(results[0]) == repr(results[1]) or isinstance(results[0], str) == isinstance(results[1], str) is True
