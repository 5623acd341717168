"""Bind expressions of the syntax tree to typed expressions over a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..conf.errors import SchemaError
from ..expressions.kinds import DURATION, map_refused
from ..expressions.nodes import Call, Constant, Expression, Field, fields
from ..expressions.places import Text
from ..expressions.python_functions import PythonFunction
from ..expressions.scalars import ColumnScope, ScalarBinder, check_steady, unwrapped
from ..expressions.terms import ROWS
from ..operators.relations.plan.aggregates import TEXT_LISTS, aggregation, is_aggregate, joined_list, text_list
from ..operators.relations.plan.nodes import Aggregation, Order
from .scope import is_outer

_NUMBERED = frozenset(
    ["row_number", "rank", "dense_rank", "ntile", "lag", "lead", "percent_rank", "cume_dist", "nth_value"]
)


_PERCENTILES = ("percentile", "approx_percentile", "percentile_approx", "percentile_cont", "percentile_disc")


@dataclass(frozen=True)
class FunctionCall:
    """A function call, with the name in lower case. ``COUNT(*)`` has no arguments."""

    name: str
    arguments: Sequence[exp.Expr]
    distinct: bool


def read_call(node: exp.Expr, function: exp.Expr, text: Text) -> FunctionCall:
    """Return a call's arguments; errors point at ``node``, which may include FILTER.

    Functions with another value at each evaluation are refused, as a replayed batch would have other rows.
    """
    name = function.this.lower()
    arguments = function.expressions
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
    star = len(arguments) == 1 and isinstance(arguments[0], exp.Star)
    check_steady(node, name, text)
    if name in _NUMBERED:
        raise text.error(
            node, f"{name.upper()} needs OVER", hint="QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n"
        )
    if not is_aggregate(name) and (distinct or star):
        what = "DISTINCT" if distinct else "*"
        raise text.error(node, f"{what} is only for aggregates, and {name.upper()} is none")
    if star and name != "count":
        raise text.error(node, f"{name.upper()}(*) is not possible", hint="name a column")
    return FunctionCall(name, [] if star else arguments, distinct)


def renamed_aggregation(each: Aggregation, name: str) -> Aggregation:
    """Return the aggregate with another column name."""
    return replace(each, name=name)


def _inside(node: exp.Expr, found: Callable[[exp.Expr], bool]) -> bool:
    """Search an expression, but not its subqueries."""
    if found(node):
        return True
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return False
    return any(_inside(each, found) for each in node.iter_expressions())


def call_of(node: exp.Expr) -> exp.Expr:
    """Return a function call without OVER, FILTER and WITHIN GROUP."""
    while isinstance(node, exp.Window | exp.Filter | exp.WithinGroup):
        node = node.this
    return node


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether the expression has an aggregate that is not over a window."""
    if isinstance(node, exp.Window):
        inside = [each for each in node.iter_expressions() if each is not node.this]
        return any(has_aggregate(each) for each in (*inside, *call_of(node).iter_expressions()))
    if isinstance(node, exp.Anonymous) and is_aggregate(node.this.lower()):
        return True
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return False
    return any(has_aggregate(each) for each in node.iter_expressions())


def has_window(node: exp.Expr) -> bool:
    """Return whether the expression has a function with OVER."""
    return _inside(node, lambda each: isinstance(each, exp.Window))


def has_query(node: exp.Expr) -> bool:
    """Return whether the expression has a subquery."""
    return _inside(node, lambda each: isinstance(each, exp.Subquery | exp.Exists))


_NOTED = "\0aggregate\0"


class Scalars(ScalarBinder):
    """A binder of the expressions at one place of a query, which ``where`` names in errors.

    With ``aggregates``, aggregates are allowed: each is collected and replaced by a field with a name of its own.
    ``over`` has the columns of functions with OVER and of scalar subqueries, by node id. ``sets`` are the expressions
    of GROUP BY, if it has ROLLUP, CUBE or GROUPING SETS.
    """

    def __init__(
        self,
        text: Text,
        scope: ColumnScope,
        *,
        aggregates: bool = False,
        where: str = "here",
        over: Mapping[int, Expression] | None = None,
        sets: Sequence[Expression] | None = None,
    ) -> None:
        super().__init__(text, scope, where)
        self.over = over or {}
        self.collects = aggregates
        self.sets = sets
        self.found: list[Aggregation] = []
        self._places: dict[Expression, exp.Expr] = {}

    def place(self, expression: Expression) -> Any:
        return self._places.get(expression, (0, 0))

    def _column(self, node: exp.Expr) -> Expression:
        found = super()._column(node)
        if pa.types.is_map(found.type):
            refused = map_refused(node.name, found.type)
            raise self.text.error(node, refused.problem, expected=refused.expected, hint=refused.hint)
        self._places.setdefault(found, node)
        return found

    def _in(self, node: exp.Expr) -> Expression:
        if node.args.get("query") is not None:
            raise self._misplaced(node, "IN (SELECT …)")
        return super()._in(node)

    def _misplaced(self, node: exp.Expr, what: str) -> Exception:
        return self.text.error(
            node,
            f"{what} is not supported {self.where}",
            expected=f"{what} as one of the conditions that AND joins in WHERE",
            hint="split the query with UNION, or join with the subquery",
        )

    def _exists(self, node: exp.Expr) -> Expression:
        raise self._misplaced(node, "EXISTS (SELECT …)")

    def _subquery(self, node: exp.Expr) -> Expression:
        found = self.over.get(id(node))
        if found is not None:
            return found
        raise self.text.error(
            node,
            f"a subquery is not a value {self.where}",
            expected="SELECT of an aggregate as a value in SELECT, WHERE or HAVING",
            hint="put it into FROM with an alias, FROM …, (SELECT MAX(x) AS top FROM …) AS m, and use m.top",
        )

    def _function(self, node: exp.Expr) -> Expression:
        """Bind a call, perhaps with FILTER, WITHIN GROUP or an ORDER BY among its arguments."""
        function, where, order = node, None, None
        while not isinstance(function, exp.Anonymous):
            what = "FILTER" if isinstance(function, exp.Filter) else "ORDER BY"
            if not is_aggregate(str(call_of(function).this).lower()):
                raise self.text.error(node, f"{what} is only for aggregates", hint="use CASE WHEN … THEN … END")
            if isinstance(function, exp.Filter):
                where = function.expression.this
            elif order is not None:
                raise self.text.error(node, "a call has one ORDER BY", hint="list all keys in WITHIN GROUP")
            else:
                order = function.expression
            function = function.this
        declared = function.args.get("declared")
        if declared is not None:
            return self._python(function, declared)
        if function.this in ROWS:
            return self.row(function)
        called = read_call(node, function, self.text)
        if called.name in {"grouping", "grouping_id"}:
            return self._grouping(node, called.name, [self.bind(each) for each in called.arguments])
        if not is_aggregate(called.name):
            return self.call(node, called.name, [self.bind(each) for each in called.arguments])
        return self._aggregate(node, called, where, order)

    def _python(self, node: exp.Expr, declared: PythonFunction) -> Expression:
        try:
            return declared.call([self.bind(each) for each in node.expressions])
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _grouping(self, node: exp.Expr, name: str, arguments: Sequence[Expression]) -> Expression:
        """Return the call unchanged: it refers to a column of the groups, like other expressions of GROUP BY."""
        if self.sets is None:
            raise self.text.error(
                node,
                f"{name.upper()} needs several groupings, and cannot stand {self.where} here",
                hint="write GROUP BY ROLLUP (a, b), CUBE (a, b) or GROUPING SETS ((a, b), (a), ())",
            )
        usage = "GROUPING(x) of one expression of GROUP BY, or GROUPING_ID() of all of them in their order"
        if name == "grouping" and not (len(arguments) == 1 and arguments[0] in self.sets):
            raise self.text.error(node, "GROUPING is of an expression of GROUP BY", expected=usage)
        if name == "grouping_id" and arguments and list(arguments) != list(self.sets):
            raise self.text.error(node, "GROUPING_ID is of all that GROUP BY names", expected=usage)
        return Call(name, tuple(arguments), pa.int8() if name == "grouping" else pa.int64())

    def _aggregate(
        self, node: exp.Expr, called: FunctionCall, where: exp.Expr | None, order: exp.Order | None
    ) -> Expression:
        if not self.collects:
            hint, name = "use HAVING" if self.where == "in WHERE" else "aggregate in a subquery", called.name.upper()
            raise self.text.error(node, f"{name} is an aggregate, which cannot stand {self.where}", hint=hint)
        inner = Scalars(self.text, self.scope, where=f"inside of {called.name.upper()}")
        if called.name in {"avg", "mean", "sum"} and len(called.arguments) == 1 and order is None:
            value = inner.bind(called.arguments[0])
            if value.type == DURATION:
                count, _ = bound_aggregation(node, replace(called, name="count"), inner, where)
                return self._of_intervals(node, called, value, count)
        at = 0 if order is not None else 1
        shares = unwrapped(called.arguments[at]) if len(called.arguments) > at else None
        if called.name in _PERCENTILES and isinstance(shares, exp.Anonymous) and shares.this == "ARRAY":
            return self._percentiles(node, called, at, where, order)
        made, joined = bound_aggregation(node, called, inner, where, order)
        found = self._noted(made)
        return found if joined is None else joined_list(found, joined)

    def _percentiles(
        self, node: exp.Expr, called: FunctionCall, at: int, where: exp.Expr | None, order: exp.Order | None
    ) -> Expression:
        """Return an array of percentiles, one for each of several shares; null if there are no values."""
        found: list[Expression] = []
        for each in unwrapped(called.arguments[at]).expressions:
            arguments = [*called.arguments[:at], each, *called.arguments[at + 1 :]]
            found.append(self._aggregate(node, replace(called, arguments=arguments), where, order))
        if not found:
            raise self.text.error(called.arguments[at], "there are no shares", expected="ARRAY(0.5, 0.9)")
        empty = self.call(node, "is_null", found[:1])
        return self.call(node, "if", [empty, Constant(None, pa.null()), self.call(node, "array", found)])

    def _noted(self, made: Aggregation) -> Expression:
        if made not in self.found:
            self.found.append(made)
        return Field(f"{_NOTED}{self.found.index(made)}", made.type)

    def _of_intervals(self, node: exp.Expr, called: FunctionCall, value: Expression, count: Aggregation) -> Expression:
        """Return the sum or average of intervals, by their microseconds and their count."""
        micros = Call("interval_micros", (value,), pa.int64())
        total = self._noted(aggregation("", "sum", [micros], distinct=called.distinct, where=count.where))
        found = Call("interval_of_micros", (total,), DURATION)
        return found if called.name == "sum" else self.call(node, "divide", [found, self._noted(count)])

    def _window(self, node: exp.Expr) -> Expression:
        found = self.over.get(id(node))
        if found is not None:
            return found
        function = node.this.this if isinstance(node.this, exp.Anonymous) else "this function"
        raise self.text.error(
            node,
            f"{function} OVER (…) is not supported {self.where}",
            hint="compute it in a subquery: FROM (SELECT *, RANK() OVER (PARTITION BY k ORDER BY x) AS r FROM s) "
            "WHERE r <= 3",
        )

    # --- above an aggregate -----------------------------------------------------------------------------------------

    def above(self, expression: Expression, groups: dict[Expression, Field], names: Sequence[str]) -> Expression:
        """Rewrite an expression over the input to one over the groups: group columns, aggregates, constants."""
        found = groups.get(expression)
        if found is not None:
            return found
        if isinstance(expression, Field):
            if expression.name.startswith(_NOTED):
                return Field(names[int(expression.name.removeprefix(_NOTED))], expression.type)
            raise self.text.error(
                self.place(expression),
                f"'{self._written(expression)}' is neither in GROUP BY nor in an aggregate",
                hint=f"add it to GROUP BY, or take MAX({self._written(expression)})",
            )
        if isinstance(expression, Call):
            arguments = tuple(self.above(each, groups, names) for each in expression.arguments)
            return Call(expression.function, arguments, expression.type)
        return expression

    def _written(self, expression: Field) -> str:
        node = self._places.get(expression)
        return node.name if isinstance(node, exp.Column) else expression.name


def bound_aggregation(
    node: exp.Expr, called: FunctionCall, inner: Scalars, where: exp.Expr | None, order: exp.Order | None = None
) -> tuple[Aggregation, Expression | None]:
    """Return an aggregate, bound by ``inner``, and the text between the items of one that joins them."""
    name = called.name
    if not called.arguments and name == "count" and not node.find(exp.Star):
        raise inner.text.error(node, "COUNT() counts nothing", hint="write COUNT(*)")
    bound = [inner.bind(each) for each in called.arguments]
    orders = [
        Order(inner.bind(each.this), bool(each.args["desc"]), bool(each.args["nulls_first"]))
        for each in (order.expressions if order is not None else [])
    ]
    condition = inner.condition(where) if where is not None else None
    if any(is_outer(each) for every in (*bound, *(each.expression for each in orders)) for each in fields(every)):
        raise inner.text.error(node, "an aggregate over a column of the query around is not supported")
    try:
        joined = text_list(name, bound) if name in TEXT_LISTS else None
        given = bound if joined is None else joined[:1]
        function = name if joined is None else "collect_list"
        made = aggregation("", function, given, distinct=called.distinct, where=condition, order=orders)
    except SchemaError as error:
        raise inner.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
    return made, None if joined is None else joined[1]


Scalars.rules = {
    **ScalarBinder.rules,
    exp.Anonymous: Scalars._function,
    exp.Column: Scalars._column,
    exp.Exists: Scalars._exists,
    exp.Filter: Scalars._function,
    exp.In: Scalars._in,
    exp.Subquery: Scalars._subquery,
    exp.Window: Scalars._window,
    exp.WithinGroup: Scalars._function,
}
