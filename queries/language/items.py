"""The list of SELECT: stars, names, and numbers that refer to an item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from ..expressions.nodes import Expression, fields
from .context import Context
from .scope import Scope, is_outer
from .shapes import unwrapped

__all__ = ["Item", "bare", "is_star", "item_at", "item_of", "named_items", "no_outer", "starred"]


@dataclass(frozen=True)
class Item:
    """One column of SELECT."""

    name: str
    expression: Expression
    node: exp.Expr


def is_star(node: exp.Expr) -> bool:
    """Return whether an item of SELECT is ``*`` or ``s.*``."""
    inner = node.this if isinstance(node, exp.Alias) else node
    return isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))


def bare(node: exp.Expr) -> exp.Expr:
    """Return an item without its alias."""
    return node.this if isinstance(node, exp.Alias) else node


def no_outer(items: Sequence[Item], context: Context) -> None:
    """Refuse columns of the outer query."""
    for each in items:
        if any(is_outer(name) for name in fields(each.expression)):
            raise context.text.error(each.node, "a column of the query around is not supported in SELECT")


def starred(node: exp.Expr, scope: Scope, context: Context) -> list[Item]:
    """Return the columns of a ``*``."""
    table = node.text("table").lower()
    if table and table not in scope.tables():
        scope.resolve(table, "*", node, context.text)
    return [
        Item(each.name, each.expression, node)
        for each in scope.columns
        if (each.table.lower() == table if table else each.starred)
    ]


def item_of(node: exp.Expr, expression: Expression) -> Item:
    """Return an item with its own name: its alias, its column's or its function's."""
    if isinstance(node, exp.Alias):
        return Item(node.alias, expression, node)
    inner = unwrapped(node)
    while isinstance(inner, exp.Cast | exp.Filter | exp.Window):
        inner = unwrapped(inner.this)
    if isinstance(inner, exp.Column):
        return Item(inner.name, expression, node)
    if isinstance(inner, exp.Dot):
        return Item(inner.expression.name, expression, node)
    name = inner.this.lower() if isinstance(inner, exp.Anonymous) else "column"
    return Item(name, expression, inner)


def named_items(items: Sequence[Item], context: Context) -> tuple[tuple[str, Expression], ...]:
    """Name each column; add a number to names that are neither aliases nor columns if they are taken."""
    taken: dict[str, exp.Expr] = {}
    given = [isinstance(each.node, exp.Alias | exp.Column | exp.Dot | exp.Star) for each in items]
    for each, own in zip(items, given, strict=True):
        if own:
            if each.name.lower() in taken:
                raise context.text.error(
                    each.node, f"two columns are named '{each.name}'", hint=f"give one another name: … AS {each.name}2"
                )
            taken[each.name.lower()] = each.node
    columns: list[tuple[str, Expression]] = []
    for each, own in zip(items, given, strict=True):
        name = each.name
        number = 2
        while not own and name.lower() in taken:
            name, number = f"{each.name}_{number}", number + 1
        taken[name.lower()] = each.node
        columns.append((name, each.expression))
    return tuple(columns)


def item_at(node: exp.Expr, select: exp.Select, context: Context, clause: str) -> exp.Expr | None:
    """Return the item to which a number in GROUP BY or ORDER BY refers."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    items = select.expressions
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
        raise context.text.error(node, f"{clause} {node.name} is no column of SELECT", expected=f"1 to {len(items)}")
    return bare(items[int(node.name) - 1])
