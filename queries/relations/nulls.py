"""The columns of a relation that are never null."""

from __future__ import annotations

from collections.abc import Collection

from ..expressions.nodes import Call, Constant, Expression, Field, conjuncts
from .nodes import (
    Aggregate,
    Copies,
    Distinct,
    Hop,
    Join,
    Node,
    Project,
    SetOperation,
    Stream,
    Top,
    Where,
    Windowed,
)

__all__ = ["never_null"]

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_NEVER = frozenset({"is_null", "is_not_null", "eq_null_safe"})
_COUNTS = frozenset({"count", "approx_count_distinct", "collect_set"})


def never_null(node: Node) -> frozenset[str]:
    """Return the columns that are known to have a value in each row.

    Rows of a stream without a time, and of an update stream without a key, are quarantined, so these columns qualify.
    """
    match node:
        case Stream(_, schema):
            certain = {each.name for each in schema if not each.nullable}
            return frozenset(certain | {node.event_time} - {""} | set(node.key if node.updates else ()))
        case Windowed(stream, window):
            bounds = set(node.schema.names[-2:]) if isinstance(window, Hop) and window.columns else set[str]()
            return never_null(stream) | bounds
        case Where(source, condition):
            return never_null(source) | _required(condition)
        case Project(source, columns):
            return _computed(columns, never_null(source))
        case Aggregate(source, by, aggregates):
            counts = {each.name for each in aggregates if each.function in _COUNTS}
            return _computed(by, never_null(source)) | counts
        case Join():
            return _of_join(node)
        case SetOperation(left, right, kind, _):
            one, other = never_null(left), never_null(right)
            other = frozenset(a for a, b in zip(left.schema.names, right.schema.names, strict=True) if b in other)
            return one & other if kind == "union" else one | other if kind == "intersect" else one
        case Copies(source, name):
            return never_null(source) | {name}
        case Distinct(source) | Top(source):
            return never_null(source)
        case _:  # a sample of a stream, or changes of a relation
            return never_null(node.inputs[0])


def _of_join(node: Join) -> frozenset[str]:
    left, right = never_null(node.left), never_null(node.right)
    compared = {each.name for pair in node.on for each in pair if isinstance(each, Field)}
    met = frozenset(compared) | _required(node.condition)
    match node.how:
        case "inner":
            return left | right | met
        case "left" | "anti" | "null_aware_anti":
            return left
        case "right":
            return right
        case "semi":
            return left | met.intersection(node.left.schema.names)
        case _:
            return frozenset()


def _required(condition: Expression | None) -> frozenset[str]:
    """Return the columns that have a value wherever the condition is true."""
    found: set[str] = set()
    for each in conjuncts(condition):
        if not isinstance(each, Call):
            continue
        if each.function in _COMPARISONS:
            found.update(one.name for one in each.arguments if isinstance(one, Field))
        elif each.function in {"is_not_null", "in", "between", "like"} and isinstance(each.arguments[0], Field):
            found.add(each.arguments[0].name)
    return frozenset(found)


def _computed(columns: Collection[tuple[str, Expression]], certain: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, each in columns if _has_value(each, certain))


def _has_value(expression: Expression, certain: frozenset[str]) -> bool:
    if isinstance(expression, Field):
        return expression.name in certain
    if isinstance(expression, Constant):
        return expression.value is not None
    if expression.function == "coalesce":
        return any(_has_value(each, certain) for each in expression.arguments)
    return expression.function in _NEVER
