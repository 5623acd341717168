"""SELECT: its sources and conditions, then groups or rows."""

from __future__ import annotations

from sqlglot import exp

from ..expressions.nodes import Expression
from ..expressions.scalars import Visible
from ..operators.relations.plan.bounds import only_grows
from ..operators.relations.plan.nodes import Relation, Where
from .arrays import bind_generators
from .groups import bind_groups
from .over import WindowColumns, bind_first, bind_over, of_stream
from .predicates import Values, bind_where, terms
from .scalars import Scalars, has_aggregate, has_window
from .scope import Bound, Context, Scope, unseen
from .select_list import Item, bare, finished, is_star, item_of, named_items, no_outer, starred
from .sources import holds_newest


def bind_select(select: exp.Select, context: Context, around: Scope | None) -> Bound:
    """Return a SELECT as a relation."""
    filtered = bind_where(select, context, around)
    if filtered.outer:
        raise context.text.error(
            filtered.outer[0][1],
            "a column of the query around is not supported here",
            hint="join with the subquery in FROM instead",
        )
    items = [each for each in select.expressions if not is_star(each)]
    having = select.args.get("having")
    grouped = select.args.get("group") is not None or having is not None or any(has_aggregate(each) for each in items)
    order: exp.Order | None = select.args.get("order")
    if order is not None and not grouped:
        grouped = any(has_aggregate(each) for each in order.expressions)
    if grouped:
        return bind_groups(select, filtered, context)
    qualify = select.args.get("qualify")
    ranked = [each for each in select.expressions if has_window(each)]
    functions = WindowColumns(context, Scalars(context.text, filtered.source.scope, where="in OVER"))
    over: dict[int, Expression] = {}
    streams = filtered.source.streams
    first = bind_first(qualify, filtered, context) if qualify is not None and not ranked else None
    relation: Relation = filtered.relation
    if first is not None:
        relation, qualify = first, None
    elif qualify is None and ranked and of_stream(ranked, filtered):
        relation, columns_over = bind_over(ranked, filtered, context)
        over |= columns_over
    elif ranked or qualify is not None:
        over |= functions.read([*ranked, *terms(None if qualify is None else qualify.this)])
        if not over:
            raise context.text.error(
                qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into WHERE"
            )
        relation = functions.joined(relation)
        streams = streams and only_grows(relation)
    below = relation
    while isinstance(below, Where):
        below = below.source
    streams = streams and not holds_newest(below)
    values = Values(context, filtered.source.scope, bind_where)
    over |= values.read(select.expressions)
    relation = values.joined(relation)
    arrays = Scalars(context.text, filtered.source.scope, where="in an array function")
    relation, elements = bind_generators(select.expressions, relation, arrays, context)
    scalars = Scalars(context.text, filtered.source.scope, where="in SELECT", over=over)
    found: list[Item] = []
    for node in select.expressions:
        if is_star(node):
            found += starred(node, filtered.source.scope, context)
        else:
            found.append(item_of(node, elements.get(id(bare(node))) or scalars.bind(bare(node))))
    no_outer(found, context)
    named = [Visible("", each.name, each.expression) for each in found if isinstance(each.node, exp.Alias)]
    inside = Scalars(
        context.text, filtered.source.scope.joined(unseen(named, filtered.source.scope)), where="in QUALIFY", over=over
    )
    for node in terms(qualify.this if qualify is not None else None):
        relation = context.noted(Where(relation, inside.condition(node)), node)
    columns = named_items(found, context)
    ordering = Scalars(context.text, filtered.source.scope, where="in ORDER BY")
    return Bound(finished(select, relation, columns, ordering, None, context), streams)
