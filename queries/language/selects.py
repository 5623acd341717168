"""SELECT: its sources and conditions, and then groups or rows."""

from __future__ import annotations

from sqlglot import exp

from ..expressions.nodes import Expression
from ..relations.nodes import Where
from .context import Bound, Context
from .groups import bind_groups
from .items import Item, bare, is_star, item_of, named_items, no_outer, starred
from .overs import bind_over
from .predicates import bind_where
from .qualify import bind_qualify
from .results import finished
from .scalars import Scalars
from .scope import Scope
from .shapes import has_aggregate, has_window
from .sources import holds_newest
from .values import Values

__all__ = ["bind_select"]


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
    over: dict[int, Expression] = {}
    ranked = [each for each in select.expressions if has_window(each)]
    if ranked:
        if select.args.get("qualify") is not None:
            raise context.text.error(select.args["qualify"], "QUALIFY beside OVER in SELECT is not supported")
        relation, columns_over = bind_over(ranked, filtered, context)
        over |= columns_over
    else:
        relation = bind_qualify(select, filtered, context)
    below = relation
    while isinstance(below, Where):
        below = below.source
    streams = filtered.source.streams and not holds_newest(below)
    values = Values(context, filtered.source.scope, bind_where)
    over |= values.read(select.expressions)
    relation = values.joined(relation)
    scalars = Scalars(context.text, filtered.source.scope, where="in SELECT", over=over)
    found: list[Item] = []
    for node in select.expressions:
        if is_star(node):
            found += starred(node, filtered.source.scope, context)
        else:
            found.append(item_of(node, scalars.bind(bare(node))))
    no_outer(found, context)
    columns = named_items(found, context)
    ordering = Scalars(context.text, filtered.source.scope, where="in ORDER BY")
    return Bound(finished(select, relation, columns, ordering, None, context), streams)
