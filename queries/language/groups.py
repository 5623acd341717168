"""SELECT with aggregates: GROUP BY and HAVING."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ..expressions.nodes import Expression, Field
from ..relations.nodes import Aggregation, Where
from .context import Bound, Context
from .froms import Filtered
from .grouping import aggregated, bind_grouping
from .items import bare, is_star, item_of, named_items, no_outer
from .predicates import bind_where, terms
from .results import finished
from .scalars import Scalars
from .scope import Visible
from .shapes import has_aggregate, renamed_aggregation
from .values import Values

__all__ = ["bind_groups"]


def bind_groups(select: exp.Select, filtered: Filtered, context: Context) -> Bound:
    """Return a SELECT with GROUP BY, HAVING or aggregates."""
    text, scope = context.text, filtered.source.scope
    for each in select.expressions:
        if is_star(each):
            raise text.error(each, "* cannot stand beside aggregates or GROUP BY", hint="name the columns of GROUP BY")
    if select.args.get("qualify") is not None:
        raise text.error(
            select.args["qualify"], "QUALIFY beside aggregates is not supported", hint="aggregate in a subquery"
        )
    having = select.args.get("having")
    grouping = bind_grouping(select, scope, context)
    sets = grouping.by if grouping.sets is not None else None
    values = Values(context, scope, bind_where, correlated=False)
    over = values.read([*select.expressions, *([] if having is None else [having])])
    scalars = Scalars(text, scope, aggregates=True, where="in SELECT", over=over, sets=sets)
    raw = [(node, scalars.bind(bare(node))) for node in select.expressions]
    aliases = {node.alias.lower(): each for node, each in raw if isinstance(node, exp.Alias)}
    conditions: list[Expression] = []
    if having is not None:
        for node in terms(having.this):
            # As in Spark, HAVING may name what SELECT has named, if no source has a column of that name.
            visible = [Visible("", key, each) for key, each in aliases.items() if not scope.has(key)]
            inside = Scalars(text, scope.joined(visible), aggregates=True, where="in HAVING", over=over, sets=sets)
            inside.found = scalars.found
            inside._places = scalars._places
            conditions.append(inside.condition(node))
    ordering = Scalars(text, scope, aggregates=True, where="in ORDER BY", sets=sets)
    ordering.found, ordering._places = scalars.found, scalars._places
    order: exp.Order | None = select.args.get("order")
    for each in order.expressions if order is not None else []:
        if not (isinstance(each.this, exp.Column) and each.this.name.lower() in aliases) and has_aggregate(each.this):
            ordering.bind(each.this)  # its aggregates are computed with the others
    names, groups = _group_names(grouping.by, scalars.found, raw, context)
    aggregates = [renamed_aggregation(each, name) for each, name in zip(scalars.found, names, strict=True)]
    relation = aggregated(filtered.relation, grouping, groups, aggregates, context)
    context.noted(relation, select.args.get("group") or select)
    relation = values.joined(relation)
    groups |= {each: each for each in values.columns()}
    for condition, node in zip(conditions, terms(having.this) if having is not None else [], strict=True):
        relation = context.noted(Where(relation, scalars.above(condition, groups, names)), node)
    items = [item_of(node, scalars.above(each, groups, names)) for node, each in raw]
    no_outer(items, context)
    columns = named_items(items, context)

    def above(each: Expression) -> Expression:
        return ordering.above(each, groups, names)

    return Bound(finished(select, relation, columns, ordering, above, context))


def _group_names(
    by: Sequence[Expression],
    aggregates: Sequence[Aggregation],
    raw: Sequence[tuple[exp.Expr, Expression]],
    context: Context,
) -> tuple[list[str], dict[Expression, Field]]:
    """Name the aggregate's columns, after the columns of SELECT where they are the same."""
    wished: dict[Expression, str] = {}
    for node, each in raw:
        wished.setdefault(each, item_of(node, each).name)
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
