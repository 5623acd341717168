import math
import operator
from datetime import date, timedelta
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest
from kit.failures import fails

from upstream.conf.errors import SchemaError
from upstream.expressions.kinds import BOOLEAN, DATE, DOUBLE, DURATION, INT, LONG, TEXT
from upstream.expressions.nodes import Constant, Expression
from upstream.expressions.types import call

from .values import evaluate, fields, run

_THREE = (True, False, None)
_PAIRS = list(product(_THREE, _THREE))
_LEFT, _RIGHT = [a for a, _ in _PAIRS], [b for _, b in _PAIRS]


def test_logic_of_three_values():
    both = (_LEFT, BOOLEAN), (_RIGHT, BOOLEAN)
    conjunction = [False if False in pair else None if None in pair else True for pair in _PAIRS]
    disjunction = [True if True in pair else None if None in pair else False for pair in _PAIRS]
    assert evaluate("and", *both) == conjunction
    assert evaluate("or", *both) == disjunction
    assert evaluate("not", (list(_THREE), BOOLEAN)) == [False, True, None]


_GIVEN, _ROWS, _SCHEMA = fields(
    ([1, 0, None, 4], INT), ([True, False, None, True], BOOLEAN), (["2", "x", "x", "x"], TEXT)
)
_NUMBER, _FLAG, _TEXT = _GIVEN
_ZERO, _NULL = Constant(0, INT), Constant(None, pa.null())
_QUOTIENT = call("divide", [Constant(8, INT), _NUMBER])
_BIG = call("gt", [_QUOTIENT, Constant(3.0, DOUBLE)])
_NOT_ZERO = call("ne", [_NUMBER, _ZERO])


def _run(function: str, *arguments: Expression) -> list[object]:
    return run(call(function, arguments), _ROWS, _SCHEMA)


def test_the_right_side_fails_only_where_the_left_one_does_not_decide():
    assert _run("and", _NOT_ZERO, _BIG) == [True, False, None, False]
    assert _run("or", call("eq", [_NUMBER, _ZERO]), _BIG) == [True, True, None, False]
    null = Constant(None, BOOLEAN)
    for function, left in (("and", call("eq", [_NUMBER, _ZERO])), ("or", _NOT_ZERO), ("and", _BIG), ("and", null)):
        fails("division by zero", _run, function, left, _BIG)


def test_case_evaluates_the_branch_that_it_takes():
    assert _run("if", _NOT_ZERO, _QUOTIENT, Constant(-1.0, DOUBLE)) == [8.0, -1.0, -1.0, 2.0]
    assert _run("case", call("eq", [_NUMBER, _ZERO]), _NULL, _BIG, Constant(1, INT), _ZERO) == [1, None, 0, 0]
    fails("division by zero", _run, "if", _NOT_ZERO, _ZERO, _QUOTIENT)
    fails("division by zero", _run, "case", _BIG, _ZERO, _NOT_ZERO, _ZERO, _ZERO)


def test_coalesce_stops_at_the_first_value():
    number = call("int", [_TEXT])
    assert _run("coalesce", call("if", [_NOT_ZERO, _NUMBER, Constant(9, INT)]), number) == [1, 9, 9, 4]
    fails("cast", _run, "coalesce", _NUMBER, number)


def test_in_is_null_if_it_is_not_found_beside_a_null():
    given = ([1, 2, None], INT)
    one, null = ([1], INT), ([None], INT)
    assert evaluate("in", given, constants=[one, ([3], INT)]) == [True, False, None]
    assert evaluate("in", given, constants=[one, null]) == [True, None, None]
    nan = float("nan")
    assert evaluate("in", ([0.0, nan], DOUBLE), constants=[([-0.0], DOUBLE), ([nan], DOUBLE)]) == [True, True]


def test_in_evaluates_candidates_until_one_is_equal():
    assert _run("in", call("coalesce", [_NUMBER, _ZERO]), _ZERO, call("coalesce", [_NUMBER, _ZERO])) == [True] * 4
    quotient = call("div", [Constant(8, INT), _NUMBER])
    assert run(call("in", [_ZERO, _NUMBER, quotient]), _ROWS, _SCHEMA) == [False, True, None, False]
    fails("division by zero", run, call("in", [_ZERO, quotient, _NUMBER]), _ROWS, _SCHEMA)


def test_an_operand_is_not_needed_beside_a_null_before_it():
    """Spark leaves the right side alone where the left one is null; a divisor comes first."""
    number = call("int", [_TEXT])
    null_on_x = call("if", [call("eq", [_TEXT, Constant("2", TEXT)]), Constant(1, INT), Constant(None, INT)])
    assert _run("add", null_on_x, number) == [3, None, None, None]
    assert _run("divide", number, null_on_x) == [2.0, None, None, None]
    assert _run("pmod", number, null_on_x) == [0, None, None, None]
    wrong = (("add", (number, null_on_x)), ("greatest", (null_on_x, number)), ("pmod", (null_on_x, number)))
    for function, arguments in wrong:
        fails("cast", _run, function, *arguments)


def test_what_decides_for_all_rows_leaves_no_errors():
    assert _run("and", _BIG, Constant(False, BOOLEAN)) == [False] * 4
    assert _run("or", _BIG, Constant(True, BOOLEAN)) == [True] * 4
    assert _run("in", Constant(None, INT), _NUMBER, call("int", [_TEXT])) == [None] * 4
    for function, value in (("and", True), ("or", False), ("and", None)):
        fails("division by zero", _run, function, _BIG, Constant(value, BOOLEAN))
    number = call("int", [_TEXT])
    for arguments in ((number, _NULL), (_NULL, number), (number, call("nullif", [_ZERO, _ZERO]))):
        assert _run("add", *arguments) == [None] * 4
    fails("cast", _run, "add", number, call("nullif", [_ZERO, _NUMBER]))


def test_try_divide_by_zero_does_not_look_at_what_is_divided():
    number = call("int", [_TEXT])
    one_on_2 = call("if", [call("eq", [_TEXT, Constant("2", TEXT)]), Constant(1, INT), _ZERO])
    assert _run("try_divide", number, one_on_2) == [2.0, None, None, None]
    assert _run("try_mod", number, _ZERO) == [None] * 4
    fails("cast", _run, "try_divide", number, call("add", [one_on_2, Constant(1, INT)]))
    fails("cast", _run, "try_add", number, one_on_2)


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


_ARRAYS = ([[1, None, 3], [], None, [7]], pa.list_(INT))


def test_a_field_of_a_struct():
    struct = pa.struct([("x", INT), ("y", TEXT)])
    column = [{"x": 1, "y": "a"}, {"x": None, "y": "b"}, None], struct
    assert evaluate("get_field", column, constants=[(["x"], TEXT)]) == [1, None, None]
    assert evaluate("get_field", column, constants=[(["y"], TEXT)]) == ["a", "b", None]


def test_get_and_items_count_from_zero_and_only_get_is_null_outside():
    assert evaluate("get", _ARRAYS, ([0, 0, 0, 1], LONG)) == [1, None, None, None]
    assert evaluate("get", _ARRAYS, ([-1, -1, 0, None], LONG)) == [None, None, None, None]
    assert evaluate("get", _ARRAYS, ([2, 5, 0, 0], INT)) == [3, None, None, 7]
    assert evaluate("size", _ARRAYS) == [3, 0, None, 1]
    assert evaluate("get_item", _ARRAYS, ([2, None, -1, 0], INT)) == [3, None, None, 7]
    for place in (-1, 1):
        fails("no such element", evaluate, "get_item", ([[7]], pa.list_(INT)), ([place], INT))


def test_element_at_counts_from_one_or_from_the_end():
    arrays = [[1, None, 3], [5], None], pa.list_(INT)
    assert evaluate("element_at", arrays, ([3, -1, 9], INT)) == [3, 5, None]
    assert evaluate("element_at", arrays, ([2, 1, 1], INT)) == [None, 5, None], "an element may be null"
    for place, reason in ((0, "element 0"), (4, "shorter"), (-4, "shorter")):
        fails(reason, evaluate, "element_at", arrays, ([place, 1, 1], INT))
        if place:
            assert evaluate("try_element_at", arrays, ([place, 1, 1], INT)) == [None, 5, None]
        else:
            fails(reason, evaluate, "try_element_at", arrays, ([place, 1, 1], INT))
    assert evaluate("try_element_at", arrays, ([None, 1, 0], INT)) == [None, 5, None], "of no array there is none"


def test_array_contains_is_null_where_a_null_may_be_the_value():
    arrays = [[1, None], [1, None], [1, 2], [], None], pa.list_(INT)
    assert evaluate("array_contains", arrays, ([1, 2, 3, 3, 1], INT)) == [True, None, False, False, None]
    assert evaluate("array_contains", ([[1]], pa.list_(INT)), ([None], INT)) == [None]
    arrays = [["a", None, "é"], [], [None], None], pa.list_(TEXT)
    assert evaluate("array_join", arrays, constants=[(["-"], TEXT)]) == ["a-é", "", "", None]
    assert evaluate("array_join", arrays, constants=[(["-"], TEXT), (["?"], TEXT)]) == ["a-?-é", "", "?", None]


def test_sequences_go_from_one_value_to_another():
    ends = ([1, 3, None, 2], INT), ([3, 1, 2, 2], INT)
    assert evaluate("sequence", *ends) == [[1, 2, 3], [3, 2, 1], None, [2]]
    assert evaluate("generate_series", *ends) == [[1, 2, 3], [], None, [2]]
    assert evaluate("generate_series", *ends, ([2, -2, 1, -1], LONG)) == [[1, 3], [3, 1], None, [2]]
    assert evaluate("sequence", ([5], INT), ([5], INT), ([0], INT)) == [[5]]
    far = ([-(2**63)], LONG), ([2**63 - 1], LONG)
    assert evaluate("sequence", *far, ([2**63 - 1], LONG)) == [[-(2**63), -1, 2**63 - 2]]
    fails("too long", evaluate, "sequence", *far)
    fails("leads away", evaluate, "sequence", ([1], INT), ([3], INT), ([-1], INT))
    fails("step is 0", evaluate, "generate_series", ([1], INT), ([1], INT), ([0], INT))
    days = ([date(2024, 2, 28), date(2024, 3, 2)], DATE), ([date(2024, 3, 1), date(2024, 3, 1)], DATE)
    hours = ([timedelta(days=2), timedelta(days=2)], DURATION)
    assert evaluate("generate_series", *days, hours) == [[date(2024, 2, 28), date(2024, 3, 1)], []]
    fails("no number of days", evaluate, "generate_series", *days, ([timedelta(hours=5)] * 2, DURATION))
    assert evaluate("array", ([1, None], INT), ([3, 4], LONG)) == [[1, 3], [None, 4]]


_PAIR = pa.struct([("a", INT), ("b", DOUBLE)])
_STRUCTS = [None, *({"a": a, "b": b} for a in (None, 1, 2) for b in (None, -1.5, math.nan))]


def _in_sparks_order(value):
    """The key of a struct: null is less than any other value of a field, and equal to null; NaN is the greatest."""
    fields = value.values()
    return [(each is not None, each != each, 0 if each is None or each != each else each) for each in fields]


@pytest.mark.parametrize(
    ("function", "compare"),
    [(name, getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
)
def test_structs_compare_by_their_fields(function, compare):
    left, right = zip(*product(_STRUCTS, _STRUCTS), strict=True)
    found = evaluate(function, (left, _PAIR), (right, _PAIR))
    assert found == [
        None if one is None or two is None else compare(_in_sparks_order(one), _in_sparks_order(two))
        for one, two in zip(left, right, strict=True)
    ]


def test_null_structs_are_alike_and_a_struct_of_nulls_is_no_null():
    none = {"a": None, "b": None}
    assert evaluate("eq_null_safe", ([None, None, none], _PAIR), ([None, none, none], _PAIR)) == [True, False, True]
    assert evaluate("is_null", ([None, none], _PAIR)) == [True, False]


def test_a_struct_of_values_is_compared_by_place_and_its_fields_are_the_values():
    (number, pair), rows, schema = fields(([1, 2, None], INT), ([{"a": 1, "b": 1.0}, None, {"a": 2, "b": None}], _PAIR))
    made = call("named_struct", [Constant("x", TEXT), number, Constant("y", TEXT), Constant(1, INT)])
    assert run(made, rows, schema) == [{"x": 1, "y": 1}, {"x": 2, "y": 1}, {"x": None, "y": 1}]
    assert call("get_field", [made, Constant("X", TEXT)]) == number
    assert run(call("in", [made, pair, call("struct", [Constant(2, INT), Constant(1, LONG)])]), rows, schema) == [
        True,
        True,
        False,
    ]
    for problem, function, given in (
        ("as many fields", "eq", [made, number]),
        ("as many fields", "eq", [made, call("struct", [number])]),
        ("cast them", "lt", [pair, call("struct", [Constant("1", TEXT)] * 2)]),
        ("two fields are named x", "named_struct", [Constant("x", TEXT), number] * 2),
        ("literal name", "named_struct", [number, number]),
    ):
        fails(problem, call, function, given, error=SchemaError)


def test_nanvl_needs_its_second_value_only_for_nan():
    (value, number), rows, schema = fields(([1.0, math.nan, None], DOUBLE), ([0, 2, 0], INT))
    inverse = call("divide", [Constant(1, INT), number])
    assert run(call("nanvl", [value, inverse]), rows, schema) == [1.0, 0.5, None]
    fails("division by zero", run, call("nanvl", [inverse, value]), rows, schema)
    never = call("divide", [Constant(1, INT), Constant(0, INT)])
    assert run(call("nanvl", [value, never]), rows[:1], schema) == [1.0]
    fails("division by zero", run, call("nanvl", [value, never]), rows, schema)
