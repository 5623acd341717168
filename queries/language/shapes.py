"""Tests for the contents of a syntax tree's expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from ..relations.aggregates import is_aggregate
from ..relations.nodes import Aggregation

__all__ = ["has_aggregate", "has_query", "has_window", "renamed_aggregation", "unwrapped"]


def renamed_aggregation(each: Aggregation, name: str) -> Aggregation:
    """Return the aggregate with another column name."""
    return replace(each, name=name)


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return the expression without its brackets."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _inside(node: exp.Expr, found: Callable[[exp.Expr], bool]) -> bool:
    """Search an expression, but not its subqueries."""
    if found(node):
        return True
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return False
    return any(_inside(each, found) for each in node.iter_expressions())


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether the expression has an aggregate that is not over a window."""
    if isinstance(node, exp.Window):
        function = node.this.this if isinstance(node.this, exp.Filter) else node.this
        return any(has_aggregate(each) for each in function.iter_expressions())
    if isinstance(node, exp.Anonymous) and is_aggregate(node.this.lower()):
        return True
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return False
    return any(has_aggregate(each) for each in node.iter_expressions())


def has_window(node: exp.Expr) -> bool:
    """Return whether the expression has a function with OVER."""
    return _inside(node, lambda each: isinstance(each, exp.Window))


def has_query(node: exp.Expr) -> bool:
    """Return whether the expression has a subquery."""
    return _inside(node, lambda each: isinstance(each, exp.Subquery | exp.Exists))
