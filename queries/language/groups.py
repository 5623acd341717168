"""SELECT with aggregates: GROUP BY and HAVING."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ..expressions.nodes import Expression, Field, fields
from ..relations.nodes import Aggregate, Aggregation, Relation, Where
from .context import Bound, Context
from .items import bare, is_star, item_at, item_of, named_items, no_outer
from .predicates import Filtered, terms
from .results import finished
from .scalars import Scalars
from .scope import Scope, Visible, is_outer
from .shapes import has_aggregate, renamed_aggregation

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
    scalars = Scalars(text, scope, aggregates=True, where="in SELECT")
    by = _groups(select, scope, context)
    raw = [(node, scalars.bind(bare(node))) for node in select.expressions]
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
    items = [item_of(node, scalars.above(each, groups, names)) for node, each in raw]
    no_outer(items, context)
    columns = named_items(items, context)

    def above(each: Expression) -> Expression:
        return ordering.above(each, groups, names)

    return Bound(finished(select, relation, columns, ordering, above, context))


def _groups(select: exp.Select, scope: Scope, context: Context) -> list[Expression]:
    group = select.args.get("group")
    found: list[Expression] = []
    for node in group.expressions if group is not None else []:
        if has_aggregate(node):
            raise context.text.error(node, "an aggregate cannot stand in GROUP BY", hint="aggregate in a subquery")
        target = item_at(node, select, context, "GROUP BY")
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


def _group_names(
    by: Sequence[Expression],
    aggregates: Sequence[Aggregation],
    raw: Sequence[tuple[exp.Expr, Expression]],
    context: Context,
) -> tuple[list[str], dict[Expression, Field]]:
    """Name the columns of the aggregate, after the columns of SELECT where they are the same."""
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
