"""The columns that identify a relation's rows: the key of the table that holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..expressions.nodes import Expression, Field
from .nodes import (
    Aggregate,
    Copies,
    Distinct,
    Join,
    Latest,
    Node,
    Project,
    Rows,
    SetOperation,
    Stream,
    Top,
    Where,
    Windowed,
)

__all__ = ["key_of"]

Key = tuple[str, ...]


def key_of(plan: Node) -> tuple[str, ...] | None:
    """Return the fewest known columns that identify a relation's rows, in order; () if there is at most one row.

    No two rows, or copies of one, ever have equal values in all of them; null equals null. It is None if rows can be
    equal, as in a projection without the key, and for streams.
    """
    found = _keys(plan)
    if not found:
        return None
    fewest = min(found, key=len)
    return tuple(name for name in plan.schema.names if name in fewest)


def _keys(node: Node) -> list[Key]:
    """Return minimal keys only: a join of many relations would have too many."""
    found: list[Key] = []
    for key in sorted(_all_keys(node), key=len):
        if not any(set(key).issuperset(each) for each in found):
            found.append(key)
    return found


def _all_keys(node: Node) -> list[Key]:
    match node:
        case Windowed():
            return _of_window(node)
        case Where(source, _):
            return _keys(source)
        case Top(source, _, n, by):
            groups = _names(by)
            return _keys(source) + ([groups] if n == 1 and groups is not None else [])
        case Project(source, columns):
            return _renamed(_keys(source), columns)
        case Join():
            return _of_join(node)
        case Aggregate(_, by, _):
            return [tuple(name for name, _ in by)]
        case Distinct(source) | Copies(source):
            return [*_keys(source), _columns(node)]
        case SetOperation():
            return _of_set(node)
        case _:
            return []


def _of_window(node: Windowed) -> list[Key]:
    match node.window:
        case Latest():
            assert isinstance(node.origin, Stream)
            return [node.origin.key]
        case Rows(1, partition, _):
            return [partition]
        case _:
            return []


def _renamed(keys: Sequence[Key], columns: Sequence[tuple[str, Expression]]) -> list[Key]:
    names: dict[str, str] = {}
    for name, expression in columns:
        if isinstance(expression, Field):
            names.setdefault(expression.name, name)
    return [tuple(names[each] for each in key) for key in keys if all(each in names for each in key)]


def _of_join(node: Join) -> list[Key]:
    left = _keys(node.left)
    if node.how in {"semi", "anti", "null_aware_anti"}:
        return left
    if node.how == "full":
        # A row of either side without a partner can have nulls in its own key too, and look like one of the other side.
        return []
    right = _keys(node.right)
    found: list[Key] = []
    # A row of one side meets one row at most if a key of the other side is among what is equal.
    if node.how in {"inner", "left"} and _meets_one(right, (two for _, two in node.on)):
        found += left
    if node.how in {"inner", "right"} and _meets_one(left, (one for one, _ in node.on)):
        found += right
    return found + [(*one, *two) for one in left for two in right]


def _meets_one(keys: Sequence[Key], equal: Iterable[Expression]) -> bool:
    names = {each.name for each in equal if isinstance(each, Field)}
    return any(names.issuperset(key) for key in keys)


def _of_set(node: SetOperation) -> list[Key]:
    found = [] if node.all else [_columns(node)]
    if node.kind == "union":
        return found
    found += _keys(node.left)
    if node.kind == "intersect":
        names = dict(zip(node.right.schema.names, node.left.schema.names, strict=True))
        found += [tuple(names[each] for each in key) for key in _keys(node.right)]
    return found


def _names(expressions: Sequence[Expression]) -> Key | None:
    names = [each.name for each in expressions if isinstance(each, Field)]
    return tuple(names) if len(names) == len(expressions) else None


def _columns(node: Node) -> Key:
    return tuple(node.schema.names)
