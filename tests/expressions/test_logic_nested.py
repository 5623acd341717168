import pyarrow as pa
from kit.failures import fails

from upstream.expressions.kinds import INT, LONG, TEXT

from .values import evaluate

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
    assert evaluate("get_item", _ARRAYS, ([2, None, 7, 0], INT)) == [3, None, None, 7]
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
