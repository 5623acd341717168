"""SELECT with aggregates: GROUP BY and HAVING."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from ..expressions.nodes import Call, Constant, Expression, Field, fields
from ..expressions.scalars import Visible, unwrapped
from ..operators.relations.plan.expression_rules import ordered
from ..operators.relations.plan.nodes import Aggregation, GroupAggregates, Project, Relation, SetOperation, Where
from .over import WindowColumns
from .predicates import Values, bind_where, terms
from .scalars import Scalars, has_aggregate, renamed_aggregation
from .scope import Bound, Context, Scope, is_outer, unseen
from .select_list import bare, finished, is_star, item_at, item_of, named_items, no_outer
from .sources import FilteredFrom

_MOST_SETS = 64


@dataclass(frozen=True)
class GroupExpressions:
    """The expressions of GROUP BY, each once."""

    by: tuple[Expression, ...]
    # The grouping of each part of the result; None if all rows have one, by all expressions.
    sets: tuple[tuple[Expression, ...], ...] | None = None
    # Those that are written otherwise and mean the same, as b + a and a + b, with the first spelling.
    same: Mapping[Expression, Expression] = field(default_factory=dict[Expression, Expression])


def bind_grouping(select: exp.Select, scope: Scope, context: Context) -> GroupExpressions:
    """Return the expressions and sets of GROUP BY, empty without one."""
    group = select.args.get("group")
    nodes = group.expressions if group is not None else []
    found = [_sets(node, select, scope, context) for node in nodes]
    several = any(isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets) for node in nodes)
    count = reduce(lambda total, sets: total * len(sets), found, 1)
    if count > _MOST_SETS:
        raise context.text.error(
            group,
            f"this makes {count} groupings, each an aggregate of its own",
            expected=f"at most {_MOST_SETS}",
            hint="name the groupings that you need: GROUP BY GROUPING SETS ((a, b), (a), ())",
        )
    first: dict[Expression, Expression] = {}
    written = _once(itertools.chain(*itertools.chain(*found)))
    same = {each: first.setdefault(ordered(each), each) for each in written}
    sets = tuple(_once(same[each] for each in itertools.chain(*some)) for some in itertools.product(*found))
    return GroupExpressions(_once(itertools.chain(*sets)), sets if several else None, same)


def _once(expressions: Iterable[Expression]) -> tuple[Expression, ...]:
    return tuple(dict.fromkeys(expressions))


def _sets(node: exp.Expr, select: exp.Select, scope: Scope, context: Context) -> list[tuple[Expression, ...]]:
    """Return the sets of one part of GROUP BY, the longest first."""
    node = unwrapped(node)
    if isinstance(node, exp.GroupingSets):
        return [each for inner in node.expressions for each in _sets(inner, select, scope, context)]
    if isinstance(node, exp.Rollup | exp.Cube):
        parts: list[tuple[Expression, ...]] = []
        for inner in node.expressions:
            if isinstance(inner, exp.Rollup | exp.Cube | exp.GroupingSets):
                raise context.text.error(
                    inner, "ROLLUP and CUBE are of columns", hint="put both into GROUPING SETS, or between commas"
                )
            parts += _sets(inner, select, scope, context)
        if len(parts) > _MOST_SETS:
            raise context.text.error(node, f"{len(parts)} columns are too many", expected=f"at most {_MOST_SETS}")
        if isinstance(node, exp.Rollup):
            return [tuple(itertools.chain(*parts[:size])) for size in range(len(parts), -1, -1)]
        sizes = range(len(parts), -1, -1) if 2 ** len(parts) <= _MOST_SETS else ()
        if not sizes:
            raise context.text.error(
                node,
                f"CUBE of {len(parts)} columns makes {2 ** len(parts)} groupings",
                expected=f"at most {_MOST_SETS}",
                hint="name the groupings that you need: GROUP BY GROUPING SETS ((a, b), (a), ())",
            )
        return [tuple(itertools.chain(*some)) for size in sizes for some in itertools.combinations(parts, size)]
    if isinstance(node, exp.Tuple):
        return [tuple(_bound(each, select, scope, context) for each in node.expressions)]
    return [(_bound(node, select, scope, context),)]


def _bound(node: exp.Expr, select: exp.Select, scope: Scope, context: Context) -> Expression:
    node = unwrapped(node)
    if has_aggregate(node):
        raise context.text.error(node, "an aggregate cannot be in GROUP BY", hint="aggregate in a subquery")
    target = item_at(node, select, context, "GROUP BY")
    if target is None and isinstance(node, exp.Column) and not node.text("table") and not scope.has(node.name):
        # As in Spark, a name that no source has may be one that SELECT gives.
        alias = node.name.lower()
        named = [each for each in select.expressions if isinstance(each, exp.Alias) and each.alias.lower() == alias]
        target = named[0].this if len(named) == 1 else None
    if target is not None and has_aggregate(target):
        raise context.text.error(node, "an aggregate cannot be in GROUP BY", hint="aggregate in a subquery")
    bound = Scalars(context.text, scope, where="in GROUP BY").bind(target if target is not None else node)
    if any(is_outer(each) for each in fields(bound)):
        raise context.text.error(node, "a column of the query around is not supported in GROUP BY")
    return bound


def aggregated(
    source: Relation,
    grouping: GroupExpressions,
    groups: dict[Expression, Field],
    aggregates: Sequence[Aggregation],
    context: Context,
) -> Relation:
    """Return a relation's aggregates: a ``UNION ALL`` for several sets. ``groups`` gains columns for GROUPING."""
    if grouping.sets is None:
        if not groups and not aggregates:  # one group, also of no rows
            aggregates = [Aggregation(context.fresh("rows"), "count", (), pa.int64())]
        return GroupAggregates(source, tuple((field.name, each) for each, field in groups.items()), tuple(aggregates))
    names = dict(groups)
    flags = {each: Field(context.fresh("grouping"), pa.int8()) for each in names}
    number = Field(context.fresh("grouping_id"), pa.int64())
    groups |= {Call("grouping", (each,), pa.int8()): flag for each, flag in flags.items()}
    groups |= {Call("grouping_id", (), pa.int64()): number}
    groups |= {Call("grouping_id", grouping.by, pa.int64()): number}
    parts: list[Relation] = []
    alone = grouping.sets == ((),)  # one group, also of no rows
    if alone and not aggregates:
        aggregates = [Aggregation(context.fresh("rows"), "count", (), pa.int64())]
    for some in grouping.sets:
        absent = [each not in some for each in names]
        identity = sum(flag << place for place, flag in enumerate(reversed(absent)))
        # The number is a group's column, so that a set of no columns beside others has no row where there are no rows,
        # as in Spark.
        by = [(names[each].name, each) for each in names if each in some]
        if not alone:
            by.append((number.name, Constant(identity, pa.int64())))
        columns: list[tuple[str, Expression]] = [
            (field.name, field if each in some else Constant(None, field.type)) for each, field in names.items()
        ]
        columns += [(flags[each].name, Constant(int(each not in some), pa.int8())) for each in names]
        columns.append((number.name, Constant(identity, pa.int64()) if alone else number))
        columns += [(each.name, Field(each.name, each.type)) for each in aggregates]
        parts.append(Project(GroupAggregates(source, tuple(by), tuple(aggregates)), tuple(columns)))
    return reduce(lambda left, right: SetOperation(left, right, "union", all=True), parts)


def bind_groups(select: exp.Select, filtered: FilteredFrom, context: Context) -> Bound:
    """Return a SELECT with GROUP BY, HAVING or aggregates."""
    text, scope = context.text, filtered.source.scope
    for each in select.expressions:
        if is_star(each):
            raise text.error(each, "* cannot stand beside aggregates or GROUP BY", hint="name the columns of GROUP BY")
    having, qualify = select.args.get("having"), select.args.get("qualify")
    grouping = bind_grouping(select, scope, context)
    sets = grouping.by if grouping.sets is not None else None
    values = Values(context, scope, bind_where, correlated=False)
    over = values.read([*select.expressions, *([] if having is None else [having])])
    scalars = Scalars(text, scope, aggregates=True, where="in SELECT", over=over, sets=sets)
    functions = WindowColumns(context, scalars)
    ranks = terms(None if qualify is None else qualify.this)
    over = {**over, **functions.read([*select.expressions, *ranks])}
    if qualify is not None and not functions.columns():
        raise text.error(qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into HAVING")
    scalars.over = over
    raw = [(node, scalars.bind(bare(node))) for node in select.expressions]
    aliases = {node.alias.lower(): each for node, each in raw if isinstance(node, exp.Alias)}
    visible = unseen([Visible("", key, each) for key, each in aliases.items()], scope)

    def inside(where: str) -> Scalars:
        # As in Spark, HAVING may name what SELECT has named, if no source has a column of that name.
        made = Scalars(text, scope.joined(visible), aggregates=True, where=where, over=over, sets=sets)
        made.found, made._places = scalars.found, scalars._places
        return made

    conditions = [(inside("in HAVING").condition(node), node) for node in terms(having and having.this)]
    chosen = [(inside("in QUALIFY").condition(node), node) for node in ranks]
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
    groups |= {each: groups[first] for each, first in grouping.same.items()}
    groups |= {each: each for each in [*values.columns(), *functions.columns()]}
    for condition, node in conditions:
        relation = context.noted(Where(relation, scalars.above(condition, groups, names)), node)
    relation = functions.joined(relation, lambda each: scalars.above(each, groups, names))
    for condition, node in chosen:
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
