"""SELECT: groups, HAVING, QUALIFY, the list, DISTINCT, ORDER BY with LIMIT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from ..expressions.nodes import Expression, Field, all_of, fields
from ..relations.nodes import Aggregate, Aggregation, Distinct, Order, Project, Relation, Top, Where, Windowed
from .context import Bound, Context
from .overs import bind_over
from .predicates import Filtered, bind_where, terms
from .scalars import Scalars, has_aggregate, has_window, renamed_aggregation, unwrapped
from .scope import Scope, Visible, is_outer
from .sources import holds_newest, newest

__all__ = ["bind_order", "bind_select", "limit_of"]


@dataclass(frozen=True)
class _Item:
    name: str
    expression: Expression
    node: exp.Expr


def bind_select(select: exp.Select, context: Context, around: Scope | None) -> Bound:
    """Return a SELECT as a relation.

    Raises
    ------
    QueryRefusedError
        If something in it cannot be bound.
    """
    filtered = bind_where(select, context, around)
    if filtered.outer:
        raise context.text.error(
            filtered.outer[0][1],
            "a column of the query around is not supported here",
            hint="join with the subquery in FROM instead",
        )
    items = [each for each in select.expressions if not _is_star(each)]
    having = select.args.get("having")
    grouped = select.args.get("group") is not None or having is not None or any(has_aggregate(each) for each in items)
    order: exp.Order | None = select.args.get("order")
    if order is not None and not grouped:
        grouped = any(has_aggregate(each) for each in order.expressions)
    if grouped:
        return _grouped(select, filtered, context)
    over: dict[int, Field] = {}
    ranked = [each for each in select.expressions if has_window(each)]
    if ranked:
        if select.args.get("qualify") is not None:
            raise context.text.error(select.args["qualify"], "QUALIFY beside OVER in SELECT is not supported")
        relation, over = bind_over(ranked, filtered, context)
    else:
        relation = _qualified(select, filtered, context)
    below = relation
    while isinstance(below, Where):
        below = below.source
    streams = filtered.source.streams and not holds_newest(below)
    scalars = Scalars(context.text, filtered.source.scope, where="in SELECT", over=over)
    found: list[_Item] = []
    for node in select.expressions:
        if _is_star(node):
            found += _starred(node, filtered.source.scope, context)
        else:
            found.append(_item(node, scalars.bind(_bare(node))))
    _no_outer(found, context)
    columns = _named(found, context)
    ordering = Scalars(context.text, filtered.source.scope, where="in ORDER BY")
    return Bound(_finished(select, relation, columns, ordering, None, context), streams)


def _is_star(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Alias) else node
    return isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _no_outer(items: Sequence[_Item], context: Context) -> None:
    for each in items:
        if any(is_outer(name) for name in fields(each.expression)):
            raise context.text.error(each.node, "a column of the query around is not supported in SELECT")


def _starred(node: exp.Expr, scope: Scope, context: Context) -> list[_Item]:
    table = node.text("table").lower()
    if table and table not in scope.tables():
        scope.resolve(table, "*", node, context.text)
    return [
        _Item(each.name, each.expression, node)
        for each in scope.columns
        if (each.table.lower() == table if table else each.starred)
    ]


def _item(node: exp.Expr, expression: Expression) -> _Item:
    if isinstance(node, exp.Alias):
        return _Item(node.alias, expression, node)
    inner = unwrapped(node)
    while isinstance(inner, exp.Cast | exp.Filter | exp.Window):
        inner = unwrapped(inner.this)
    if isinstance(inner, exp.Column):
        return _Item(inner.name, expression, node)
    if isinstance(inner, exp.Dot):
        return _Item(inner.expression.name, expression, node)
    name = inner.this.lower() if isinstance(inner, exp.Anonymous) else "column"
    return _Item(name, expression, inner)


def _named(items: Sequence[_Item], context: Context) -> tuple[tuple[str, Expression], ...]:
    """Give each column a name; what has none of its own gets a number if need be."""
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


# --- groups ---------------------------------------------------------------------------------------------------------


def _grouped(select: exp.Select, filtered: Filtered, context: Context) -> Bound:
    text, scope = context.text, filtered.source.scope
    for each in select.expressions:
        if _is_star(each):
            raise text.error(each, "* cannot stand beside aggregates or GROUP BY", hint="name the columns of GROUP BY")
    if select.args.get("qualify") is not None:
        raise text.error(
            select.args["qualify"], "QUALIFY beside aggregates is not supported", hint="aggregate in a subquery"
        )
    scalars = Scalars(text, scope, aggregates=True, where="in SELECT")
    by = _groups(select, scope, context)
    raw = [(node, scalars.bind(_bare(node))) for node in select.expressions]
    aliases = {node.alias.lower(): each for node, each in raw if isinstance(node, exp.Alias)}
    having = select.args.get("having")
    conditions: list[Expression] = []
    if having is not None:
        for node in terms(having.this):
            # As in Spark, HAVING may name what SELECT has named, if no source has a column of that name.
            visible = [Visible("", key, each) for key, each in aliases.items() if not scope.has(key)]
            inside = Scalars(text, scope.joined(visible), aggregates=True, where="in HAVING")
            inside.found = scalars.found
            inside._places = scalars._places
            conditions.append(inside.condition(node))
    ordering = Scalars(text, scope, aggregates=True, where="in ORDER BY")
    ordering.found, ordering._places = scalars.found, scalars._places
    order: exp.Order | None = select.args.get("order")
    for each in order.expressions if order is not None else []:
        if not (isinstance(each.this, exp.Column) and each.this.name.lower() in aliases) and has_aggregate(each.this):
            ordering.bind(each.this)  # its aggregates are computed with the others
    names, groups = _group_names(by, scalars.found, raw, context)
    relation: Relation = Aggregate(
        filtered.relation,
        tuple((field.name, each) for each, field in groups.items()),
        tuple(renamed_aggregation(each, name) for each, name in zip(scalars.found, names, strict=True)),
    )
    context.noted(relation, select.args.get("group") or select)
    for condition, node in zip(conditions, terms(having.this) if having is not None else [], strict=True):
        relation = context.noted(Where(relation, scalars.above(condition, groups, names)), node)
    items = [_item(node, scalars.above(each, groups, names)) for node, each in raw]
    _no_outer(items, context)
    columns = _named(items, context)

    def above(each: Expression) -> Expression:
        return ordering.above(each, groups, names)

    return Bound(_finished(select, relation, columns, ordering, above, context))


def _groups(select: exp.Select, scope: Scope, context: Context) -> list[Expression]:
    group = select.args.get("group")
    found: list[Expression] = []
    for node in group.expressions if group is not None else []:
        if has_aggregate(node):
            raise context.text.error(node, "an aggregate cannot stand in GROUP BY", hint="aggregate in a subquery")
        target = _position(node, select, context, "GROUP BY")
        if target is None and isinstance(node, exp.Column) and not node.text("table") and not scope.has(node.name):
            # As in Spark, a name that no source has may be one that SELECT gives.
            alias = node.name.lower()
            named = [each for each in select.expressions if isinstance(each, exp.Alias) and each.alias.lower() == alias]
            target = named[0].this if len(named) == 1 else None
        if target is not None and has_aggregate(target):
            raise context.text.error(node, "an aggregate cannot stand in GROUP BY", hint="aggregate in a subquery")
        bound = Scalars(context.text, scope, where="in GROUP BY").bind(target if target is not None else node)
        if any(is_outer(each) for each in fields(bound)):
            raise context.text.error(node, "a column of the query around is not supported in GROUP BY")
        if bound not in found:
            found.append(bound)
    return found


def _position(node: exp.Expr, select: exp.Select, context: Context, clause: str) -> exp.Expr | None:
    """Return the item that a number in GROUP BY or ORDER BY means."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    items = select.expressions
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
        raise context.text.error(node, f"{clause} {node.name} is no column of SELECT", expected=f"1 to {len(items)}")
    return _bare(items[int(node.name) - 1])


def _group_names(
    by: Sequence[Expression],
    aggregates: Sequence[Aggregation],
    raw: Sequence[tuple[exp.Expr, Expression]],
    context: Context,
) -> tuple[list[str], dict[Expression, Field]]:
    """Name the columns of the aggregate, after the columns of SELECT where they are the same."""
    wished: dict[Expression, str] = {}
    for node, each in raw:
        wished.setdefault(each, _item(node, each).name)
    taken: set[str] = set()

    def free(name: str) -> str:
        found = name if name.lower() not in taken else context.fresh(name)
        taken.add(found.lower())
        return found

    groups = {
        each: Field(free(wished.get(each) or (each.name if isinstance(each, Field) else "group")), each.type)
        for each in by
    }
    names: list[str] = []
    for at, each in enumerate(aggregates):
        noted = next(
            (name for key, name in wished.items() if isinstance(key, Field) and key.name == f"\0aggregate\0{at}"), ""
        )
        names.append(free(noted or each.function))
    return names, groups


# --- what comes after -----------------------------------------------------------------------------------------------


def _qualified(select: exp.Select, filtered: Filtered, context: Context) -> Relation:
    """Apply ``QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n``."""
    qualify = select.args.get("qualify")
    if qualify is None:
        return filtered.relation
    text, scope = context.text, filtered.source.scope
    relation = filtered.relation
    ranked, others = [], []
    for node in terms(qualify.this):
        (ranked if has_window(node) else others).append(node)
    if not ranked:
        raise text.error(qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into WHERE")
    if len(ranked) > 1:
        raise text.error(ranked[1], "QUALIFY with two functions with OVER is not supported", hint="use a subquery")
    window, n = _ranking(ranked[0], context)
    inner = Scalars(text, scope, where="in OVER")
    by = tuple(inner.bind(each) for each in window.args.get("partition_by") or [])
    order = _orders(window.args["order"], inner)
    bare = filtered.source.bare
    by_time = (
        len(order) == 1
        and bare is not None
        and order[0].expression == Field(bare.event_time, bare.schema.field(bare.event_time).type)
    )
    if (
        by_time
        and order[0].descending
        and bare is not None
        and not filtered.joined
        and all(isinstance(each, Field) for each in by)
    ):
        # The newest rows of a stream by its event time: the window that CQL has for it.
        where = filtered.conditions
        partition = tuple(each.name for each in by if isinstance(each, Field))

        windowed = filtered.source.relation
        assert isinstance(windowed, Windowed)
        relation = Windowed(windowed.stream, newest(bare, n, partition, all_of(list(where))))
    else:
        relation = Top(relation, order, n, by)
    context.noted(relation, qualify)
    for node in others:
        relation = Where(relation, Scalars(text, scope, where="in QUALIFY").condition(node))
    return relation


def _ranking(node: exp.Expr, context: Context) -> tuple[exp.Window, int]:
    usage = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) <= n"
    error = context.text.error(node, "this condition on a rank is not supported", expected=usage)
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE):
        raise error
    window, literal = unwrapped(node.this), unwrapped(node.expression)
    if not (isinstance(window, exp.Window) and isinstance(literal, exp.Literal) and literal.name.isdigit()):
        raise error
    if not isinstance(window.this, exp.Anonymous) or window.this.this != "ROW_NUMBER" or window.this.expressions:
        raise error
    if window.args.get("spec") is not None:
        raise context.text.error(window.args["spec"], "ROW_NUMBER takes no frame")
    if window.args.get("order") is None:
        raise context.text.error(window, "ROW_NUMBER needs ORDER BY", expected=usage)
    n = int(literal.name) - (1 if isinstance(node, exp.LT) else 0)
    if n < 1 or (isinstance(node, exp.EQ) and n != 1):
        raise context.text.error(node, "this keeps no first rows", expected="= 1, or <= n")
    return window, n


def _orders(order: exp.Order, scalars: Scalars) -> tuple[Order, ...]:
    return tuple(
        Order(scalars.bind(each.this), bool(each.args.get("desc")), bool(each.args.get("nulls_first")))
        for each in order.expressions
    )


def _finished(
    select: exp.Select,
    relation: Relation,
    columns: tuple[tuple[str, Expression], ...],
    ordering: Scalars,
    above: Callable[[Expression], Expression] | None,
    context: Context,
) -> Relation:
    """Project, make distinct, and take the first of an order."""
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
        target = _position(each.this, select, context, "ORDER BY")
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
    literal = limit.expression
    if not literal.name.isdigit() or int(literal.name) < 1:
        raise context.text.error(literal, f"LIMIT {literal.name} keeps no rows", expected="a whole number from 1")
    return int(literal.name)


def bind_order(node: exp.Expr, relation: Relation, context: Context) -> Relation:
    """Return the first rows of a set operation or a subquery with ORDER BY and LIMIT of its own."""
    order, n = node.args.get("order"), limit_of(node, context)
    if n is None:
        if order is not None:
            raise _without_limit(order, context)
        return relation
    scope = Scope(Visible("", each.name, Field(each.name, each.type)) for each in relation.schema)
    orders = _orders(order, Scalars(context.text, scope, where="in ORDER BY")) if order is not None else ()
    return context.noted(Top(relation, orders, n), order or node.args["limit"])
