import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from functools import reduce

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import fails, unfit

from upstream.conf.errors import QueryError
from upstream.expressions.arithmetic_types import added
from upstream.expressions.kinds import BOOLEAN, BYTE, DOUBLE, FLOAT, INT, LONG, NULL, SHORT, TEXT
from upstream.expressions.nodes import Call, Constant, Field
from upstream.expressions.numbers import rounded_doubles, rounded_integers
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


@pytest.mark.parametrize("dtype", [FLOAT, DOUBLE])
def test_zeros_beside_a_value_that_all_rows_of_a_batch_have(dtype):
    (zero, none), frame, schema = fields(([-0.0] * 9, dtype), ([None] * 9, dtype))
    same = call("coalesce", [none, Constant(0.0, dtype)])
    assert repr(run(call("add", [zero, same]), frame, schema)) == repr([0.0] * 9)
    assert repr(run(call("subtract", [same, call("negate", [zero])]), frame, schema)) == repr([0.0] * 9)


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


_TYPES = st.sampled_from((BYTE, SHORT, INT, LONG))


def _edges(dtype: pa.DataType) -> st.SearchStrategy[int | None]:
    low, high = -(1 << (dtype.bit_width - 1)), (1 << (dtype.bit_width - 1)) - 1
    return st.none() | st.sampled_from([0, 1, -1, low, high]) | st.integers(low, high)


def _wrapped(value: int, width: int) -> int:
    """The lowest bits of a number, in two's complement."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


@given(dtype=_TYPES, data=st.data())
def test_operators_work_bit_by_bit(dtype, data):
    pairs = data.draw(st.lists(st.tuples(_edges(dtype), _edges(dtype)), min_size=1, max_size=6))
    columns = ([one for one, _ in pairs], dtype), ([two for _, two in pairs], dtype)
    known = [None if None in pair else pair for pair in pairs]
    assert evaluate("bitwise_and", *columns) == [pair and pair[0] & pair[1] for pair in known]  # type: ignore[operator]
    assert evaluate("bitwise_or", *columns) == [pair and pair[0] | pair[1] for pair in known]  # type: ignore[operator]
    assert evaluate("bitwise_xor", *columns) == [pair and pair[0] ^ pair[1] for pair in known]  # type: ignore[operator]
    assert evaluate("bitwise_not", columns[0]) == [None if one is None else ~one for one, _ in pairs]


@given(dtype=_TYPES, data=st.data())
def test_counts_and_single_bits(dtype, data):
    values = data.draw(st.lists(_edges(dtype), min_size=1, max_size=6))
    counts = [None if each is None else (each & (1 << 64) - 1).bit_count() for each in values]
    assert evaluate("bit_count", (values, dtype)) == counts
    place = data.draw(st.integers(0, dtype.bit_width - 1))
    bits = [None if each is None else each >> place & 1 for each in values]
    assert evaluate("bit_get", (values, dtype), ([place] * len(values), INT)) == bits
    assert evaluate("getbit", (values, dtype), constants=[([place], INT)]) == bits


@pytest.mark.parametrize("place", [-1, 8, 2**31 - 1])
def test_a_bit_outside_of_the_number_is_an_error_where_it_is_asked_for(place):
    assert evaluate("bit_get", ([None], BYTE), ([place], INT)) == [None]
    assert evaluate("bit_get", ([1], BYTE), ([None], INT)) == [None]
    with pytest.raises(QueryError, match="no such bit") as caught:
        evaluate("bit_get", ([None, 5], BYTE), ([place, place], INT))
    assert "from 0 to 7" in str(caught.value)


@given(
    dtype=st.sampled_from((INT, LONG)),
    data=st.data(),
    places=st.integers(-70, 70) | st.sampled_from([2**31 - 1, -(2**31)]),
)
@example(dtype=INT, data=None, places=32)
@example(dtype=LONG, data=None, places=64)
def test_shifts_take_the_last_bits_of_their_places(dtype, data, places):
    values = [7, -8, None] if data is None else data.draw(st.lists(_edges(dtype), min_size=1, max_size=6))
    width = dtype.bit_width
    by = places & (width - 1)

    def shifted(function: str) -> list[int | None]:
        column = evaluate(function, (values, dtype), ([places] * len(values), INT))
        assert evaluate(function, (values, dtype), constants=[([places], INT)]) == column
        return column

    assert shifted("shiftleft") == [None if each is None else _wrapped(each << by, width) for each in values]
    assert shifted("shiftright") == [None if each is None else each >> by for each in values]
    unsigned = [None if each is None else _wrapped((each & (1 << width) - 1) >> by, width) for each in values]
    assert shifted("shiftrightunsigned") == unsigned


@pytest.mark.parametrize(
    ("function", "types", "expected"),
    [
        ("bitwise_and", (BYTE, INT), INT),
        ("bitwise_or", (BYTE, TEXT), LONG),
        ("bitwise_xor", (NULL, SHORT), SHORT),
        ("bitwise_and", (NULL, NULL), INT),
        ("bitwise_not", (SHORT,), SHORT),
        ("bitwise_not", (NULL,), INT),
        ("bit_count", (BOOLEAN,), INT),
        ("bit_get", (LONG, LONG), BYTE),
        ("shiftleft", (BYTE, LONG), INT),
        ("shiftright", (TEXT, INT), INT),
        ("shiftrightunsigned", (LONG, BYTE), LONG),
        ("shiftleft", (DOUBLE, INT), INT),
    ],
)
def test_types_are_sparks(function, types, expected):
    made = call(function, [Constant(None, each) if each == NULL else Field("x", each) for each in types])
    assert made.type == expected


@pytest.mark.parametrize(
    ("function", "types", "part"),
    [
        ("bitwise_and", (DOUBLE, INT), "two whole numbers"),
        ("bitwise_or", (BOOLEAN, BOOLEAN), "AND, OR and NOT"),
        ("bitwise_xor", (INT,), "two whole numbers"),
        ("bitwise_not", (TEXT,), "cast the text"),
        ("bitwise_not", (DOUBLE,), "a whole number"),
        ("bit_count", (TEXT,), "a whole number"),
        ("bit_get", (TEXT, INT), "a whole number"),
        ("bit_get", (INT,), "place of a bit"),
        ("shiftleft", (BOOLEAN, INT), "INT or BIGINT"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(function, types, part):
    unfit(part, call, function, [Field("x", each) for each in types])


def test_operators_are_written_as_in_sql():
    x = Field("x", INT)
    assert str(call("bitwise_or", [call("bitwise_not", [x]), call("bitwise_and", [x, x])])) == "((~x) | (x & x))"


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
