from typing import Any

import pytest

from upstream.queries.expressions.kinds import INT, TEXT

from ..failing import unfit
from .values import evaluate


@pytest.mark.parametrize(
    ("part", "text", "start", "expected"),
    [
        ("b", "abcb", 1, 2),
        ("b", "abcb", 3, 4),
        ("b", "abcb", 5, 0),
        ("b", "abcb", 0, 0),
        ("b", "abcb", -1, 0),
        ("", "abcb", 2, 1),
        ("", "abcb", 9, 1),
        ("x", "é😀x", 2, 3),
        ("b", None, 1, None),
        (None, "a", 1, None),
        (None, None, None, 0),
    ],
)
def test_locate(part: Any, text: Any, start: Any, expected: Any) -> None:
    assert evaluate("locate", ([part], TEXT), ([text], TEXT), ([start], INT)) == [expected]


def test_find_in_set_counts_between_commas() -> None:
    items = ["b", "", "a,b", "z", None, "a", "é"], TEXT
    assert evaluate("find_in_set", items, constants=[(["a,b,,é"], TEXT)]) == [2, 3, 0, 0, None, 1, 4]
    assert evaluate("find_in_set", (["a"], TEXT), ([None], TEXT)) == [None]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "a"), (2, "a.b"), (9, "a.b.c"), (0, ""), (-1, "c"), (-2, "b.c"), (-9, "a.b.c"), (None, None)],
)
def test_substring_index(count: int | None, expected: str | None) -> None:
    given = ["a.b.c"], TEXT
    assert evaluate("substring_index", given, constants=[(["."], TEXT), ([count], INT)]) == [expected]
    assert evaluate("substring_index", given, constants=[([""], TEXT), ([count], INT)]) == [
        None if count is None else ""
    ]
    unfit("overlap", evaluate, "substring_index", given, constants=[(["aa"], TEXT), ([count], INT)])


@pytest.mark.parametrize(
    ("place", "length", "expected"),
    [
        (3, None, "abXYef"),
        (3, 0, "abXYcdef"),
        (0, None, "XYbcdef"),
        (-2, None, "XYabcdef"),
        (-2, 1, "XYf"),
        (10, 1, "abcdefXY"),
        (3, -1, "abXYef"),
    ],
)
def test_overlay(place: int, length: int | None, expected: str) -> None:
    more = [([place], INT), *([([length], INT)] if length is not None else [])]
    assert evaluate("overlay", (["abcdef"], TEXT), constants=[(["XY"], TEXT), *more]) == [expected]
