"""WHERE: conditions, and IN and EXISTS with subqueries, which become joins."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from ...conf.errors import SchemaError
from ..expressions.nodes import Call, Expression, Field, all_of, fields, renamed
from ..expressions.typing import call
from ..relations.nodes import Changes, Join, Project, Relation, Unbounded, Where, Windowed
from .context import Context
from .froms import Filtered, bind_from, equalities
from .scalars import Scalars
from .scope import OUTER, Scope, is_outer
from .shapes import has_aggregate, has_query, unwrapped
from .values import Values, is_value

__all__ = ["bind_where", "terms"]


def terms(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions of a conjunction, without brackets."""
    if node is None:
        return []
    node = unwrapped(node)
    if isinstance(node, exp.And):
        return [*terms(node.this), *terms(node.expression)]
    return [node]


def bind_where(select: exp.Select, context: Context, around: Scope | None) -> Filtered:
    """Return the rows of FROM for which WHERE is true."""
    source = bind_from(select, context, around)
    where = select.args.get("where")
    plain: list[Expression] = []
    outer = [*source.outer]
    valued: list[Expression] = []
    subqueries: list[tuple[exp.Expr, bool]] = []
    values = Values(context, source.scope, bind_where)
    for node in terms(where.this if where is not None else None):
        inner, negated = _positive(node)
        if isinstance(inner, exp.Exists) or (isinstance(inner, exp.In) and inner.args.get("query") is not None):
            subqueries.append((inner, negated))
            continue
        found = values.read([node])
        bound = Scalars(context.text, source.scope, where="in WHERE", over=found).condition(node)
        if any(is_outer(each) for each in fields(bound)):
            outer.append((bound, node))
        else:
            (valued if found else plain).append(bound)
    relation = source.relation
    condition = all_of(plain)
    if condition is not None:
        relation = context.noted(Where(relation, condition), where)
    for node, negated in [each for each in subqueries if _is_equal(each[0])]:
        valued.append(_equal_to(node, source.scope, values, context, negated=negated))
    relation = values.joined(relation)
    condition = all_of(valued)
    if condition is not None:
        relation = context.noted(Where(relation, condition), where)
    for node, negated in [each for each in subqueries if not _is_equal(each[0])]:
        relation = _semi(node, relation, source.scope, context, negated=negated)
    return Filtered(source, relation, tuple(plain), tuple(outer), bool(subqueries or values.columns()))


def _is_equal(node: exp.Expr) -> bool:
    """Return whether the condition is ``x IN (SELECT MAX(y) …)``, which compares with one row."""
    return isinstance(node, exp.In) and not isinstance(node.this, exp.Tuple) and is_value(node.args["query"].this)


def _equal_to(node: exp.Expr, scope: Scope, values: Values, context: Context, *, negated: bool) -> Expression:
    value = values.value(node.args["query"])
    try:
        equal = call("eq", [Scalars(context.text, scope, where="before IN").bind(node.this), value])
    except SchemaError as error:
        raise context.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
    return call("not", [equal]) if negated else equal


def _positive(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """Return the condition without NOT, and True if it is negated."""
    negated = False
    node = unwrapped(node)
    while isinstance(node, exp.Not):
        node, negated = unwrapped(node.this), not negated
    return node, negated


@dataclass(frozen=True)
class _Inner:
    """A subquery of IN or EXISTS: its rows, the values of its SELECT, and its correlating conditions."""

    relation: Relation
    values: tuple[Expression, ...]
    outer: tuple[tuple[Expression, exp.Expr], ...]


def _simple(query: exp.Expr) -> bool:
    """Return whether the subquery's WHERE may have columns of the outer query."""
    clauses = ("group", "having", "qualify", "order", "limit", "with_")
    if not isinstance(query, exp.Select) or any(query.args.get(each) for each in clauses):
        return False
    return not any(has_aggregate(each) or has_query(each) for each in query.expressions)


def _inner(query: exp.Expr, scope: Scope, context: Context, *, values: bool) -> _Inner:
    if not _simple(query):
        bound = context.query(query, context, None).node
        relation = Windowed(bound, Unbounded()) if isinstance(bound, Changes) else bound
        return _Inner(relation, tuple(Field(each.name, each.type) for each in relation.schema), ())
    assert isinstance(query, exp.Select)
    filtered = bind_where(query, context, Scope(scope.columns))
    if not values:
        _check_items(query, filtered.source.scope, context)
        return _Inner(filtered.relation, (), filtered.outer)
    found: list[Expression] = []
    for item in query.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            found += [
                each.expression
                for each in filtered.source.scope.columns
                if each.starred and inner.text("table").lower() in {"", each.table.lower()}
            ]
            continue
        bound = Scalars(context.text, filtered.source.scope, where="in SELECT").bind(inner)
        if any(is_outer(each) for each in fields(bound)):
            raise context.text.error(inner, "a column of the query around is not supported in this SELECT")
        found.append(bound)
    return _Inner(filtered.relation, tuple(found), filtered.outer)


def _check_items(query: exp.Select, scope: Scope, context: Context) -> None:
    """Refuse unknown names in the SELECT of EXISTS, whose values do not matter."""
    for item in query.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if not (isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))):
            Scalars(context.text, scope, where="in SELECT").bind(inner)


def _semi(node: exp.Expr, left: Relation, scope: Scope, context: Context, *, negated: bool) -> Relation:
    if isinstance(node, exp.Exists):
        inner = _inner(node.this, scope, context, values=False)
        pairs: list[tuple[Expression, Expression]] = []
        how = "anti" if negated else "semi"
        return _join(node, left, inner, pairs, [], how, context)
    query: exp.Expr = node.args["query"].this
    inner = _inner(query, scope, context, values=True)
    wanted = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
    if len(wanted) != len(inner.values):
        raise context.text.error(
            node, f"IN compares {len(wanted)} with {len(inner.values)} columns of its subquery", expected="as many"
        )
    if negated and len(wanted) > 1:
        raise context.text.error(
            node, "NOT IN of several columns is not supported", hint="write NOT EXISTS (SELECT … WHERE a = x AND b = y)"
        )
    ours = Scalars(context.text, scope, where="before IN")
    both: list[tuple[Expression, Expression]] = []
    for one, two in zip(wanted, inner.values, strict=True):
        value = ours.bind(one)
        if any(is_outer(each) for each in fields(value)):
            raise context.text.error(one, "a column of the query around is not supported before IN")
        both.append((value, two))
    return _join(node, left, inner, both, [], "null_aware_anti" if negated else "semi", context)


def _join(
    node: exp.Expr,
    left: Relation,
    inner: _Inner,
    pairs: list[tuple[Expression, Expression]],
    rest: list[Expression],
    how: str,
    context: Context,
) -> Relation:
    """Join with the columns that the subquery compares, under fresh names."""
    names: dict[str, str] = {}
    columns: list[tuple[str, Expression]] = []

    def named(expression: Expression) -> Field:
        for name, each in columns:
            if each == expression:
                return Field(name, each.type)
        name = context.fresh("in")
        columns.append((name, expression))
        return Field(name, expression.type)

    correlations: list[Expression] = []
    for condition, _ in inner.outer:
        for each in sorted(fields(condition)):
            if not is_outer(each) and each not in names:
                names[each] = named(Field(each, inner.relation.schema.field(each).type)).name
        correlations.append(renamed(condition, names))
    lefts = set(left.schema.names)
    back = {OUTER + each: each for each in lefts}
    on: list[tuple[Expression, Expression]] = []
    for one, two in pairs:
        try:
            equal = call("eq", [one, named(two)])
        except SchemaError as error:
            raise context.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
        assert isinstance(equal, Call)
        on.append((equal.arguments[0], equal.arguments[1]))
    rest = [*rest, *(renamed(each, back) for each in correlations)]
    # A relation has a column at least: of a subquery that nothing is compared with, whether it has a row matters.
    right = Project(inner.relation, tuple(columns) or ((context.fresh("in"), _true()),))
    more, others = equalities(all_of(rest), lefts, set(right.schema.names))
    made = Join(left, right, how, (*on, *more), all_of(others))  # pyright: ignore[reportArgumentType]
    return context.noted(made, node)


def _true() -> Expression:
    from ..expressions.nodes import Constant

    return Constant(value=True, type=pa.bool_())
