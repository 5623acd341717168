"""Scalar subqueries: ``px > (SELECT AVG(px) FROM … WHERE k = a.k)`` becomes a join with groups.

The SELECT of such a subquery is an aggregate without GROUP BY, so it has one row. Its equalities with the outer query
become the groups of a LEFT join. Without a matching group, a count is 0 and another aggregate null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from ..expressions.nodes import Constant, Expression, Field, fields, substituted, walk
from ..expressions.typing import call
from ..relations.nodes import Aggregate, Aggregation, Join, Relation
from .context import Context
from .froms import Filtered, equalities
from .items import bare, is_star
from .scalars import Scalars
from .scope import OUTER, Scope, is_outer
from .shapes import has_aggregate, renamed_aggregation

__all__ = ["Values", "is_value"]

_CLAUSES = ("group", "having", "qualify", "order", "limit", "with_", "distinct")
_IN_FROM = "put it into FROM with an alias, FROM …, (SELECT MAX(x) AS top FROM …) AS m, and use m.top"
_COUNTS = frozenset(["count", "approx_count_distinct"])


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
class _Joined:
    """The groups of a subquery, and the pairs that join them."""

    groups: Aggregate
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
        rows: Callable[[exp.Select, Context, Scope | None], Filtered],
        *,
        correlated: bool = True,
    ) -> None:
        self._context = context
        self._scope = scope
        self._rows = rows
        self._correlated = correlated
        self._joins: list[_Joined] = []

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
        groups = Aggregate(filtered.relation, by, tuple(aggregates))
        on = tuple((_around(one), Field(name, inner.type)) for (one, _), (name, inner) in zip(pairs, by, strict=True))
        self._joins.append(_Joined(context.noted(groups, node), on, node))
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
            if each.function == "collect_set":
                raise self._context.text.error(
                    node, "COLLECT_SET in a subquery that reads the query around is not supported", hint=_IN_FROM
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
