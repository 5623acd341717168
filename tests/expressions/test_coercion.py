import pyarrow as pa
import pytest
from kit.failures import unfit

from upstream.conf.errors import SchemaError
from upstream.expressions.coercion import Signature, cast, common, implicit, misfit, numbers_of_both
from upstream.expressions.kinds import BOOLEAN, DATE, DOUBLE, FLOAT, INT, LONG, NULL, SHORT, TEXT, TIMESTAMP
from upstream.expressions.nodes import Call, Constant, Field

_MONEY = pa.decimal128(5, 2)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([SHORT, INT], INT),
        ([INT, FLOAT], DOUBLE),
        ([FLOAT, FLOAT], FLOAT),
        ([FLOAT, DOUBLE], DOUBLE),
        ([INT, _MONEY], pa.decimal128(12, 2)),
        ([LONG, _MONEY], pa.decimal128(22, 2)),
        ([_MONEY, FLOAT], DOUBLE),
        ([TEXT, INT], LONG),
        ([TEXT, _MONEY], DOUBLE),
        ([TEXT, DATE], DATE),
        ([DATE, TIMESTAMP], TIMESTAMP),
        ([TEXT, BOOLEAN], BOOLEAN),
        ([NULL, NULL, SHORT], SHORT),
        ([NULL], NULL),
        ([TEXT, TEXT], TEXT),
    ],
)
def test_common_type(types, expected):
    assert common(types) == expected
    assert common(types[::-1]) == expected


@pytest.mark.parametrize("types", [[BOOLEAN, INT], [DATE, INT], [TIMESTAMP, BOOLEAN], [pa.binary(), INT]])
def test_types_without_a_common_one_are_refused(types):
    unfit("no type in common", common, types)


def test_a_constant_beside_a_decimal_has_no_more_digits_than_it_needs():
    money = Field("m", _MONEY)
    left, right = numbers_of_both(money, Constant(100, INT)) or ()
    assert (left, right.type) == (money, pa.decimal128(3, 0))
    both = numbers_of_both(Field("i", INT), money) or ()
    assert both[0].type == pa.decimal128(10, 0)
    for other in (Field("t", TEXT), Field("d", DATE)):
        assert numbers_of_both(Field("s", TEXT), other) is None


def test_text_is_cast_to_what_a_function_takes_and_a_time_to_no_number():
    assert implicit(Field("s", TEXT), DATE) == Call("cast", (Field("s", TEXT),), DATE)
    assert implicit(Field("d", DATE), INT) is None
    assert implicit(Constant(None, NULL), INT) == Constant(None, INT)
    assert implicit(Field("b", BOOLEAN), DOUBLE) is None
    assert cast(Field("x", INT), INT) == Field("x", INT)
    assert cast(Field("x", TEXT), INT, try_=True) == Call("try_cast", (Field("x", TEXT),), INT)


@pytest.mark.parametrize(("given", "wanted"), [(DATE, LONG), (TIMESTAMP, BOOLEAN), (BOOLEAN, DATE), (INT, DATE)])
def test_casts_that_spark_does_not_have_are_refused(given, wanted):
    unfit("cannot be cast", cast, Field("x", given), wanted)


def test_arguments_are_cast_and_the_name_is_the_canonical_one():
    rule = Signature(TEXT, (TEXT, INT, INT), optional=1, name="substring")
    made = rule("substr", [Field("a", TEXT), Field("b", LONG)])
    assert made == Call("substring", (Field("a", TEXT), Call("cast", (Field("b", LONG),), INT)), TEXT)


@pytest.mark.parametrize("given", [[], [Field("a", TEXT)] * 4, [Field("a", TEXT), Field("b", BOOLEAN)]])
def test_what_does_not_fit_is_refused_with_what_would(given):
    with pytest.raises(SchemaError) as caught:
        Signature(TEXT, (TEXT, INT, INT), optional=1)("substr", given)
    assert "substr(STRING, INT[, INT])" in str(caught.value)
    assert Signature(INT, (INT,), optional=1).written("f") == "f([INT])"
    assert Signature(INT, ()).written("f") == "f()"


def test_a_misfit_names_the_arguments_with_their_types():
    error = misfit("f", [Field("a", TEXT)], "a number", "cast it")
    assert str(error).startswith("f does not take (a (STRING))")
    assert (error.expected, error.hint) == ("a number", "cast it")
