import pytest
from kit.failures import unfit

from upstream.expressions.kinds import INT, TEXT

from .values import evaluate


def test_locate():
    parts = [*["b"] * 5, "", "", "x", "b", None, None]
    texts = [*["abcb"] * 7, "é😀x", None, "a", None]
    starts = [1, 3, 5, 0, -1, 2, 9, 2, 1, 1, None]
    assert evaluate("locate", (parts, TEXT), (texts, TEXT), (starts, INT)) == [2, 4, 0, 0, 0, 1, 1, 3, None, None, 0]
    items = ["b", "", "a,b", "z", None, "a", "é"], TEXT
    assert evaluate("find_in_set", items, constants=[(["a,b,,é"], TEXT)]) == [2, 3, 0, 0, None, 1, 4]
    assert evaluate("find_in_set", (["a"], TEXT), ([None], TEXT)) == [None]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "a"), (2, "a.b"), (9, "a.b.c"), (0, ""), (-1, "c"), (-2, "b.c"), (-9, "a.b.c"), (None, None)],
)
def test_substring_index(count, expected):
    given = ["a.b.c"], TEXT
    assert evaluate("substring_index", given, constants=[(["."], TEXT), ([count], INT)]) == [expected]
    assert evaluate("substring_index", given, constants=[([""], TEXT), ([count], INT)]) == [
        None if count is None else ""
    ]
    unfit("overlap", evaluate, "substring_index", given, constants=[(["aa"], TEXT), ([count], INT)])


def test_overlay():
    for place, expected in ((3, "abXYef"), (0, "XYbcdef"), (-2, "XYabcdef")):
        assert evaluate("overlay", (["abcdef"], TEXT), constants=[(["XY"], TEXT), ([place], INT)]) == [expected]
    for place, length, expected in ((3, 0, "abXYcdef"), (-2, 1, "XYf"), (10, 1, "abcdefXY"), (3, -1, "abXYef")):
        constants = [(["XY"], TEXT), ([place], INT), ([length], INT)]
        assert evaluate("overlay", (["abcdef"], TEXT), constants=constants) == [expected]
