"""The list of SELECT, and the last steps: the columns, DISTINCT, ORDER BY with LIMIT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ..expressions.literals import count
from ..expressions.nodes import Expression, Field, fields
from ..expressions.scalars import unwrapped, visible_columns
from ..operators.relations.plan.nodes import Distinct, Order, Project, Relation, Top
from .scalars import Scalars
from .scope import Context, Scope, is_outer


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
    while isinstance(inner, exp.Cast | exp.Filter | exp.Window | exp.WithinGroup):
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
    node = unwrapped(node)
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    items = select.expressions
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
        raise context.text.error(node, f"{clause} {node.name} is not a column of SELECT", expected=f"1 to {len(items)}")
    return bare(items[int(node.name) - 1])


def orders_of(order: exp.Order, scalars: Scalars) -> tuple[Order, ...]:
    """Return the keys of ORDER BY."""
    return tuple(
        Order(scalars.bind(each.this), bool(each.args.get("desc")), bool(each.args.get("nulls_first")))
        for each in order.expressions
    )


def finished(
    select: exp.Select,
    relation: Relation,
    columns: tuple[tuple[str, Expression], ...],
    ordering: Scalars,
    above: Callable[[Expression], Expression] | None,
    context: Context,
) -> Relation:
    """Project, remove duplicates, and take the first rows of an order."""
    order, n = select.args.get("order"), limit_of(select, context)
    distinct = select.args.get("distinct") is not None
    projected: Relation = _projected(relation, columns)
    if distinct:
        projected = context.noted(Distinct(projected), select.args["distinct"])
    if order is None and n is None:
        return projected
    if n is None:
        raise _without_limit(order, context)
    outputs = {name.lower(): (name, each) for name, each in columns}
    keys: list[tuple[exp.Expr, Expression]] = []
    for each in order.expressions if order is not None else []:
        target = item_at(each.this, select, context, "ORDER BY")
        node = target if target is not None else each.this
        named = outputs.get(node.name.lower()) if isinstance(node, exp.Column) and not node.text("table") else None
        if named is not None and target is None:
            keys.append((each, named[1]))
            continue
        bound = ordering.bind(node)
        if any(is_outer(name) for name in fields(bound)):
            raise context.text.error(node, "a column of the query around is not supported in ORDER BY")
        keys.append((each, above(bound) if above is not None else bound))
    known = {each: Field(name, each.type) for name, each in columns}
    after = all(each in known for _, each in keys)
    if not after and distinct:
        bad = next(node for node, each in keys if each not in known)
        raise context.text.error(bad, "SELECT DISTINCT orders only by what it selects", hint="add it to SELECT")
    orders = tuple(
        Order(known[each] if after else each, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))
        for node, each in keys
    )
    place = order or select.args["limit"]
    if after:
        return context.noted(Top(projected, orders, n), place)
    return _projected(context.noted(Top(relation, orders, n), place), columns)


def _projected(relation: Relation, columns: tuple[tuple[str, Expression], ...]) -> Relation:
    if tuple(columns) == tuple((each.name, Field(each.name, each.type)) for each in relation.schema):
        return relation
    return Project(relation, columns)


def _without_limit(order: exp.Expr | None, context: Context) -> Exception:
    return context.text.error(
        order,
        "ORDER BY without LIMIT: a relation has no order",
        hint="add LIMIT n to keep the first n, or leave it out",
    )


def limit_of(node: exp.Expr, context: Context) -> int | None:
    """Return the n of LIMIT, if there is one."""
    limit = node.args.get("limit")
    if limit is None:
        return None
    return count(limit.expression, context.text, "LIMIT")


def bind_order(node: exp.Expr, relation: Relation, context: Context) -> Relation:
    """Apply the ORDER BY and LIMIT of a set operation or a subquery."""
    order, n = node.args.get("order"), limit_of(node, context)
    if n is None:
        if order is not None:
            raise _without_limit(order, context)
        return relation
    scope = Scope(visible_columns(relation.schema))
    orders = orders_of(order, Scalars(context.text, scope, where="in ORDER BY")) if order is not None else ()
    return context.noted(Top(relation, orders, n), order or node.args["limit"])
