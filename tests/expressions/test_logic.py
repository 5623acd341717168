from itertools import product

import pyarrow as pa
from kit.failures import fails

from upstream.expressions.kinds import BOOLEAN, DOUBLE, INT, TEXT
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
