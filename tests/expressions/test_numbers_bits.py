import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.failures import unfit

from upstream.conf.errors import QueryError
from upstream.expressions.kinds import BOOLEAN, BYTE, DOUBLE, INT, LONG, NULL, SHORT, TEXT
from upstream.expressions.nodes import Constant, Field
from upstream.expressions.types import call

from .values import evaluate

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
