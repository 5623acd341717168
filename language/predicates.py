"""WHERE: conditions, and subqueries, which become joins: IN, EXISTS, and scalar ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..conf.errors import SchemaError
from ..expressions.kinds import spark_name
from ..expressions.literals import length_us
from ..expressions.nodes import Call, Constant, Expression, Field, all_of, fields, renamed, substituted, walk
from ..expressions.scalars import unwrapped
from ..expressions.types import call
from ..operators.relations.plan.bounds import grows, never_changes
from ..operators.relations.plan.nodes import (
    Aggregation,
    Changes,
    GroupAggregates,
    Join,
    Lifetime,
    Project,
    Relation,
    UnboundedWindow,
    Where,
    WindowOver,
)
from ..operators.relations.plan.properties import has_value, never_null
from .scalars import Scalars, has_aggregate, has_query, renamed_aggregation
from .scope import OUTER, Context, Scope, is_outer
from .select_list import bare, is_star
from .sources import FilteredFrom, From, bind_from, equalities

_NOW = {"NOW", "CURRENT_TIMESTAMP"}
_COMPARISONS: dict[type[exp.Expr], str] = {exp.GT: "gt", exp.GTE: "ge", exp.LT: "lt", exp.LTE: "le"}
_FLIPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}


class Lifetimes:
    """The conditions of a WHERE that compare a time with now()."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self._begins: list[tuple[Expression, int]] = []
        self._ends: list[tuple[Expression, int]] = []
        self._place: Any = None
        self.plain: list[Expression] = []
        """The parts of ``BETWEEN`` without now()."""

    def take(self, node: exp.Expr) -> bool:
        """Take a condition; return False if it does not compare with now()."""
        node = unwrapped(node)
        parts = [(node.this, _COMPARISONS[type(node)], node.expression)] if type(node) in _COMPARISONS else []
        if isinstance(node, exp.Between):
            parts = [(node.this, "ge", node.args["low"]), (node.this, "le", node.args["high"])]
        found = [(*each, self._after_now(each[0]), self._after_now(each[2])) for each in parts]
        if all((one is None) == (other is None) for *_, one, other in found):
            return False
        for left, function, right, one, other in found:
            if one is not None:
                self._add(right, _FLIPPED[function], one)
            elif other is not None:
                self._add(left, function, other)
            else:
                self.plain.append(call(function, [self._bound(left), self._bound(right)]))
        self._place = self._place or node
        return True

    def over(self, source: From) -> From:
        """Return the rows of FROM while the conditions hold; they are a relation, which rows leave."""
        if not self._begins and not self._ends:
            return source
        if not self._ends and grows(source.relation):
            raise self._context.text.error(
                self._place,
                "rows would come with time and never leave",
                hint="read newest rows, LATEST(s), or give the time at which rows leave: t > now() - INTERVAL '1' HOUR",
            )
        if never_changes(source.relation):
            raise self._context.text.error(
                self._place, "no stream is there by whose time rows could leave", hint="join with a stream"
            )
        made = self._context.noted(Lifetime(source.relation, tuple(self._begins), tuple(self._ends)), self._place)
        return replace(source, relation=made, bare=None, streams=False)

    def _bound(self, node: exp.Expr) -> Expression:
        return Scalars(self._context.text, self._scope, where="in WHERE").bind(node)

    def _after_now(self, node: exp.Expr) -> int | None:
        """Return by how many µs a moment is after now(); None for others."""
        node = unwrapped(node)
        if isinstance(node, exp.Anonymous):
            return 0 if node.this.upper() in _NOW and not node.expressions else None
        if isinstance(node, exp.Column):
            word = not node.text("table") and node.name.upper() == "CURRENT_TIMESTAMP"
            return 0 if word and not self._scope.has(node.name) else None
        interval = unwrapped(node.expression) if isinstance(node, exp.Add | exp.Sub) else None
        if not isinstance(interval, exp.Interval):
            return None
        moment = self._after_now(node.this)
        if moment is None:
            return None
        length = length_us(interval, self._context.text, "INTERVAL")
        return moment + (length if isinstance(node, exp.Add) else -length)

    def _add(self, node: exp.Expr, function: str, after: int) -> None:
        time = self._bound(node)
        columns = fields(time)
        if not pa.types.is_timestamp(time.type) or not columns or any(map(is_outer, columns)):
            raise self._context.text.error(
                node,
                f"now() compares with a time of the row, and this is {spark_name(time.type)}",
                expected="a TIMESTAMP column: t > now() - INTERVAL '1' HOUR",
            )
        if function in {"gt", "ge"}:
            self._ends.append((time, -after + (function == "ge")))
        else:
            self._begins.append((time, -after + (function == "lt")))


_CLAUSES = ("group", "having", "qualify", "order", "limit", "with_", "distinct")
_IN_FROM = "put it into FROM with an alias, FROM …, (SELECT MAX(x) AS top FROM …) AS m, and use m.top"
_COUNTS = frozenset(["count", "approx_count_distinct"])
_MOST_WAYS = 27


def is_value(query: exp.Expr) -> bool:
    """Return whether the query always has one row: aggregates without GROUP BY."""
    if not isinstance(query, exp.Select) or any(query.args.get(each) for each in _CLAUSES):
        return False
    return any(has_aggregate(bare(each)) for each in query.expressions)


def _subqueries(node: exp.Expr) -> Iterator[exp.Subquery]:
    """Yield an expression's scalar subqueries, without nested ones."""
    if isinstance(node, exp.Subquery):
        yield node
    elif not isinstance(node, exp.Exists | exp.Select | exp.SetOperation):
        for each in node.iter_expressions():
            if each is not node.args.get("query"):  # that of IN
                yield from _subqueries(each)


@dataclass(frozen=True)
class _SubqueryJoin:
    """The groups of a subquery, and the pairs that join them."""

    groups: GroupAggregates
    on: tuple[tuple[Expression, Expression], ...]
    node: exp.Expr


class Values:
    """The scalar subqueries at one place of a query.

    ``rows`` binds the FROM and WHERE of a subquery. Unless ``correlated``, subqueries may not read the outer columns.
    """

    def __init__(
        self,
        context: Context,
        scope: Scope,
        rows: Callable[[exp.Select, Context, Scope | None], FilteredFrom],
        *,
        correlated: bool = True,
    ) -> None:
        self._context = context
        self._scope = scope
        self._rows = rows
        self._correlated = correlated
        self._joins: list[_SubqueryJoin] = []

    def read(self, nodes: Sequence[exp.Expr]) -> dict[int, Expression]:
        """Return the value of each scalar subquery in some expressions, by its node's id."""
        return {id(each): self.value(each) for node in nodes for each in _subqueries(node)}

    def joined(self, relation: Relation) -> Relation:
        for each in self._joins:
            how = "left" if each.on else "inner"
            relation = self._context.noted(Join(relation, each.groups, how, each.on), each.node)
        return relation

    def columns(self) -> list[Field]:
        return [Field(name.name, name.type) for each in self._joins for name in each.groups.aggregates]

    def value(self, node: exp.Subquery) -> Expression:
        text, query = self._context.text, node.this
        if not isinstance(query, exp.Select):
            raise text.error(node, "a subquery that is a value is one SELECT of an aggregate", hint=_IN_FROM)
        for clause in _CLAUSES:
            if query.args.get(clause):
                name = {"with_": "WITH", "group": "GROUP BY", "order": "ORDER BY"}.get(clause, clause.upper())
                raise text.error(
                    query.args[clause],
                    f"a subquery that is a value has no {name}: it has to be one row",
                    expected="an aggregate, with FROM and WHERE",
                    hint=_IN_FROM,
                )
        if len(query.expressions) != 1 or is_star(query.expressions[0]):
            raise text.error(node, "a subquery that is a value has one column", hint="name one: SELECT MAX(x) FROM …")
        item = bare(query.expressions[0])
        if not has_aggregate(item):
            raise text.error(
                query.expressions[0],
                "this subquery can have several rows, and a value is one",
                expected="an aggregate, such as MAX(x)",
                hint=_IN_FROM,
            )
        return self._grouped(node, query, item)

    def _grouped(self, node: exp.Subquery, query: exp.Select, item: exp.Expr) -> Expression:
        context = self._context
        filtered = self._rows(query, context, Scope(self._scope.columns))
        scalars = Scalars(context.text, filtered.source.scope, aggregates=True, where="in SELECT")
        bound = scalars.bind(item)
        aggregates = [renamed_aggregation(each, context.fresh("value")) for each in scalars.found]
        pairs = [pair for condition, place in filtered.outer for pair in self._equal(condition, place)]
        outer = [each for each in walk(bound) if isinstance(each, Field) and is_outer(each.name)]
        if (pairs or outer) and not self._correlated:
            raise context.text.error(
                filtered.outer[0][1] if filtered.outer else node,
                "a subquery beside aggregates cannot read the query around",
                hint="put the groups into a subquery in FROM, and read its columns",
            )
        value = scalars.above(bound, {each: _plain(each) for each in outer}, [each.name for each in aggregates])
        by = tuple((context.fresh("group"), inner) for _, inner in pairs)
        groups = GroupAggregates(filtered.relation, by, tuple(aggregates))
        on = tuple((_around(one), Field(name, inner.type)) for (one, _), (name, inner) in zip(pairs, by, strict=True))
        self._joins.append(_SubqueryJoin(context.noted(groups, node), on, node))
        return substituted(value, self._without_rows(node, aggregates)) if on else value

    def _equal(self, condition: Expression, place: exp.Expr) -> list[tuple[Expression, Expression]]:
        """Return the pairs of a condition on the outer query, which may compare only by ``=``."""
        names = fields(condition)
        outer = {each for each in names if is_outer(each)}
        pairs, rest = equalities(condition, outer, set(names) - outer)
        if rest:
            raise self._context.text.error(
                place,
                "a subquery that is a value compares with the query around by = alone",
                expected="a column of the subquery = a column of the query around",
                hint="join with the subquery's source in FROM, and aggregate the pairs with GROUP BY",
            )
        return pairs

    def _without_rows(self, node: exp.Expr, aggregates: Sequence[Aggregation]) -> dict[str, Expression]:
        """Return the aggregates' values without a matching group, where these are not null."""
        found: dict[str, Expression] = {}
        for each in aggregates:
            if each.function in {"collect_list", "collect_set"}:
                raise self._context.text.error(
                    node, "a list in a subquery that reads the query around is not supported", hint=_IN_FROM
                )
            if each.function in _COUNTS:
                zero = Constant(0, pa.int64())
                found[each.name] = call("coalesce", [Field(each.name, each.type), zero])
        return found


def _plain(field: Field) -> Field:
    return Field(field.name.removeprefix(OUTER), field.type)


def _around(expression: Expression) -> Expression:
    """Turn an expression over the outer query's columns into one over its relation."""
    outer = [each for each in walk(expression) if isinstance(each, Field)]
    return substituted(expression, {each.name: _plain(each) for each in outer})


def terms(node: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions of a conjunction, without brackets."""
    if node is None:
        return []
    node = unwrapped(node)
    if isinstance(node, exp.And):
        return [*terms(node.this), *terms(node.expression)]
    return [node]


def bind_where(select: exp.Select, context: Context, around: Scope | None) -> FilteredFrom:
    """Return the rows of FROM for which WHERE is true."""
    source = bind_from(select, context, around)
    where = select.args.get("where")
    plain: list[Expression] = []
    outer = [*source.outer]
    valued: list[Expression] = []
    subqueries: list[tuple[exp.Expr, bool]] = []
    values = Values(context, source.scope, bind_where)
    lifetimes = Lifetimes(context, source.scope)
    for node in terms(where.this if where is not None else None):
        inner, negated = _positive(node)
        if isinstance(inner, exp.Exists) or (isinstance(inner, exp.In) and inner.args.get("query") is not None):
            subqueries.append((inner, negated))
            continue
        if lifetimes.take(node):
            continue
        found = values.read([node])
        bound = Scalars(context.text, source.scope, where="in WHERE", over=found).condition(node)
        if any(is_outer(each) for each in fields(bound)):
            outer.append((bound, node))
        else:
            (valued if found else plain).append(bound)
    source = lifetimes.over(source)
    plain += lifetimes.plain
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
    return FilteredFrom(source, relation, tuple(plain), tuple(outer), bool(subqueries or values.columns()))


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
        relation = WindowOver(bound, UnboundedWindow()) if isinstance(bound, Changes) else bound
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
    ours = Scalars(context.text, scope, where="before IN")
    both: list[tuple[Expression, Expression]] = []
    for one, two in zip(wanted, inner.values, strict=True):
        value = ours.bind(one)
        if any(is_outer(each) for each in fields(value)):
            raise context.text.error(one, "a column of the query around is not supported before IN")
        both.append((value, two))
    if negated and len(both) > 1:
        return _not_in(node, left, inner, both, context)
    return _join(node, left, inner, both, [], "null_aware_anti" if negated else "semi", context)


_Pair = tuple[Expression, Expression]


def _not_in(node: exp.Expr, left: Relation, inner: _Inner, pairs: Sequence[_Pair], context: Context) -> Relation:
    """Drop the rows whose values are equal to a right row's, or may be, since null may be equal to anything.

    Each way in which all pairs may be equal is an anti join by equal keys.
    """
    sure = never_null(left), never_null(inner.relation)
    ways: list[list[_Pair]] = []
    for one, two in pairs:
        ways.append([(one, two)])
        if not has_value(one, sure[0]):
            ways[-1].append((_if_null(one), _true()))
        if not has_value(two, sure[1]):
            ways[-1].append((_true(), _if_null(two)))
    count = prod(map(len, ways))
    if count > _MOST_WAYS:
        raise context.text.error(
            node,
            f"NOT IN of {len(pairs)} columns compares in {count} ways, as null may be equal to anything",
            expected=f"at most {_MOST_WAYS}",
            hint="NOT EXISTS (SELECT … WHERE a = x AND b = y) keeps rows with a null; or leave nulls out of both sides",
        )
    for way in product(*ways):
        left = _join(node, left, inner, [*way], [], "anti", context)
    return left


def _if_null(value: Expression) -> Expression:
    """Return an expression that is true for null, and null for anything else."""
    return call("if", [call("is_null", [value]), _true()])


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
    return Constant(value=True, type=pa.bool_())
