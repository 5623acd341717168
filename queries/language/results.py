"""The last steps of SELECT: the columns, DISTINCT, ORDER BY with LIMIT."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from ..expressions.nodes import Expression, Field, fields
from ..relations.nodes import Distinct, Order, Project, Relation, Top
from .context import Context
from .items import item_at
from .literals import count
from .scalars import Scalars
from .scope import Scope, Visible, is_outer

__all__ = ["bind_order", "finished", "limit_of", "orders_of"]


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
    scope = Scope(Visible("", each.name, Field(each.name, each.type)) for each in relation.schema)
    orders = orders_of(order, Scalars(context.text, scope, where="in ORDER BY")) if order is not None else ()
    return context.noted(Top(relation, orders, n), order or node.args["limit"])
