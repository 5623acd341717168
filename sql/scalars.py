"""Bind expressions of the syntax tree to typed expressions over a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..conf.errors import SchemaError
from ..expressions.arithmetic_types import added
from ..expressions.nodes import Call, Constant, Expression, Field, fields
from ..expressions.types import call, cast, in_list
from ..operators.relations.plan.aggregates import aggregation, is_aggregate
from ..operators.relations.plan.nodes import Aggregation
from .literals import interval, number, type_of, whole_type
from .places import Text
from .scope import Scope, is_outer
from .syntax import InList, Sum

# Functions with another value at each evaluation: a replayed batch would have other rows.
_UNSTEADY = frozenset(
    [
        "current_date",
        "current_timestamp",
        "current_time",
        "localtimestamp",
        "now",
        "rand",
        "random",
        "randn",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "unix_timestamp_now",
        "current_user",
        "session_user",
        "user",
        "spark_partition_id",
    ]
)
_NUMBERED = frozenset(
    ["row_number", "rank", "dense_rank", "ntile", "lag", "lead", "percent_rank", "cume_dist", "nth_value"]
)


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
    if name in _UNSTEADY:
        raise text.error(
            node,
            f"{name.upper()} is another value at each evaluation, so a replayed batch would give other rows",
            hint="use the stream's event time, or a window",
        )
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


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return the expression without its brackets."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _inside(node: exp.Expr, found: Callable[[exp.Expr], bool]) -> bool:
    """Search an expression, but not its subqueries."""
    if found(node):
        return True
    if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        return False
    return any(_inside(each, found) for each in node.iter_expressions())


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether the expression has an aggregate that is not over a window."""
    if isinstance(node, exp.Window):
        function = node.this.this if isinstance(node.this, exp.Filter) else node.this
        return any(has_aggregate(each) for each in function.iter_expressions())
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


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "div",
    exp.Mod: "mod",
    exp.DPipe: "concat",
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.NullSafeEQ: "eq_null_safe",
    exp.And: "and",
    exp.Or: "or",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
    exp.BitwiseAnd: "bitwise_and",
    exp.BitwiseOr: "bitwise_or",
    exp.BitwiseXor: "bitwise_xor",
}
_PARTS = {"dow": "dayofweek", "doy": "dayofyear", "days": "day", "week": "weekofyear", "second": "second_with_fraction"}
_NOTED = "\0aggregate\0"


class Scalars:
    """A binder of the expressions at one place of a query, which ``where`` names in errors.

    With ``aggregates``, aggregates are allowed: each is collected and replaced by a field with a name of its own.
    ``over`` has the columns of functions with OVER and of scalar subqueries, by node id. ``sets`` are the expressions
    of GROUP BY, if it has ROLLUP, CUBE or GROUPING SETS.
    """

    def __init__(
        self,
        text: Text,
        scope: Scope,
        *,
        aggregates: bool = False,
        where: str = "here",
        over: Mapping[int, Expression] | None = None,
        sets: Sequence[Expression] | None = None,
    ) -> None:
        self.text = text
        self.scope = scope
        self.where = where
        self.over = over or {}
        self.collects = aggregates
        self.sets = sets
        self.found: list[Aggregation] = []
        self._places: dict[Expression, exp.Expr] = {}

    def bind(self, node: exp.Expr) -> Expression:
        operator = _OPERATORS.get(type(node))
        if operator is not None:
            return self._call(node, operator, [self.bind(node.this), self.bind(node.expression)])
        rule = _RULES.get(type(node))
        if rule is None:
            raise self.text.error(node, f"this is not supported {self.where}")
        return rule(self, node)

    def _sum(self, node: exp.Expr) -> Expression:
        """Add from left to right; operands of one type become one call, however many they are."""
        found, *others = (self.bind(each) for each in node.expressions)
        for each in others:
            found = added(self._call(node, "add", [found, each]))
        return found

    def condition(self, node: exp.Expr) -> Expression:
        """Bind an expression, and refuse it unless it is boolean or null."""
        found = self.bind(node)
        if not (pa.types.is_boolean(found.type) or pa.types.is_null(found.type)):
            raise self.text.error(
                node, f"this is a {found.type}, not a condition", expected="a boolean", hint="compare it: … <> 0"
            )
        return found

    def place(self, expression: Expression) -> Any:
        return self._places.get(expression, (0, 0))

    def _call(self, node: exp.Expr, function: str, arguments: Sequence[Expression]) -> Expression:
        try:
            return call(function, arguments)
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _cast(self, node: exp.Expr) -> Expression:
        inner = self.bind(node.this)
        kind = type_of(node.args["to"], self.text)
        try:
            return cast(inner, kind, try_=isinstance(node, exp.TryCast))
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _column(self, node: exp.Expr) -> Expression:
        if isinstance(node.this, exp.Star):
            raise self.text.error(node, "* stands only in the list of SELECT and in COUNT(*)")
        table, name = node.text("table"), node.name
        if table and table.lower() not in self.scope.tables() and self.scope.has(table):
            whole = self.scope.resolve("", table, node, self.text)
            return self._field(node, whole, name)
        found = self.scope.resolve(table, name, node, self.text)
        self._places.setdefault(found, node)
        return found

    def _field(self, node: exp.Expr, whole: Expression, name: str) -> Expression:
        return self._call(node, "get_field", [whole, Constant(name, pa.string())])

    def _dot(self, node: exp.Expr) -> Expression:
        return self._field(node, self.bind(node.this), node.expression.name)

    def _bracket(self, node: exp.Expr) -> Expression:
        return self._call(node, "get_item", [self.bind(node.this), self.bind(node.expressions[0])])

    def _literal(self, node: exp.Expr) -> Expression:
        if node.args.get("is_string"):
            return Constant(node.name, pa.string())
        assert isinstance(node, exp.Literal)
        return number(node, self.text)

    def _interval(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Interval)
        return interval(node, self.text)

    def _negative(self, node: exp.Expr) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return number(node.this, self.text, negative=True)
        return self._call(node, "negate", [self.bind(node.this)])

    def _not(self, node: exp.Expr) -> Expression:
        inner = unwrapped(node.this)
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return self._call(node, "is_not_null", [self.bind(inner.this)])
        return self._call(node, "not", [self.bind(node.this)])

    def _is(self, node: exp.Expr) -> Expression:
        this = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return self._call(node, "is_null", [this])
        if not (pa.types.is_boolean(this.type) or pa.types.is_null(this.type)):
            raise self.text.error(node, f"IS TRUE and IS FALSE are of conditions, not of {this.type}")
        return self._call(node, "eq_null_safe", [this, self.bind(node.expression)])

    def _in(self, node: exp.Expr) -> Expression:
        if node.args.get("query") is not None:
            raise self._misplaced(node, "IN (SELECT …)")
        if isinstance(node.this, exp.Tuple):
            raise self.text.error(
                node.this, "several columns in IN need a subquery", hint="compare each with AND and OR"
            )
        return self._call(node, "in", [self.bind(node.this), *(self.bind(each) for each in node.expressions)])

    def _in_list(self, node: exp.Expr) -> Expression:
        value, values = self.bind(node.this), node.args["values"]
        found = in_list(value, values)
        if found is not None:
            return found
        kind = type(values[0])
        made = [Constant(each, pa.string() if kind is str else whole_type(each)) for each in dict.fromkeys(values)]
        return self._call(node, "in", [value, *made])

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

    def _between(self, node: exp.Expr) -> Expression:
        return self._call(
            node, "between", [self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"])]
        )

    def _escape(self, node: exp.Expr) -> Expression:
        like = node.this
        name = "ilike" if isinstance(like, exp.ILike) else "like"
        if len(node.expression.name) != 1:
            raise self.text.error(node.expression, "ESCAPE has one character")
        return self._call(node, name, [self.bind(like.this), self.bind(like.expression), self.bind(node.expression)])

    def _case(self, node: exp.Expr) -> Expression:
        arguments: list[Expression] = []
        value = self.bind(node.this) if node.this is not None else None
        for each in node.args["ifs"]:
            test = self.bind(each.this)
            arguments.append(test if value is None else self._call(each, "eq", [value, test]))
            arguments.append(self.bind(each.args["true"]))
        default = node.args.get("default")
        arguments.append(Constant(None, pa.null()) if default is None else self.bind(default))
        return self._call(node, "case", arguments)

    def _extract(self, node: exp.Expr) -> Expression:
        part = node.name.lower()
        return self._call(node, _PARTS.get(part, part), [self.bind(node.expression)])

    def _function(self, node: exp.Expr) -> Expression:
        return self._named(node, node, None)

    def _filter(self, node: exp.Expr) -> Expression:
        inner = node.this
        if not isinstance(inner, exp.Anonymous) or not is_aggregate(inner.this.lower()):
            raise self.text.error(node, "FILTER is only for aggregates", hint="use CASE WHEN … THEN … END")
        return self._named(node, inner, node.expression.this)

    def _named(self, node: exp.Expr, function: exp.Expr, where: exp.Expr | None) -> Expression:
        called = read_call(node, function, self.text)
        if called.name in {"grouping", "grouping_id"}:
            return self._grouping(node, called.name, [self.bind(each) for each in called.arguments])
        if not is_aggregate(called.name):
            return self._call(node, called.name, [self.bind(each) for each in called.arguments])
        return self._aggregate(node, called.name, called.arguments, where, distinct=called.distinct)

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
        self, node: exp.Expr, name: str, arguments: Sequence[exp.Expr], where: exp.Expr | None, *, distinct: bool
    ) -> Expression:
        if not self.collects:
            hint = "use HAVING" if self.where == "in WHERE" else "aggregate in a subquery"
            raise self.text.error(node, f"{name.upper()} is an aggregate, which cannot stand {self.where}", hint=hint)
        if not arguments and name == "count" and not node.find(exp.Star):
            raise self.text.error(node, "COUNT() counts nothing", hint="write COUNT(*)")
        inner = Scalars(self.text, self.scope, where=f"inside of {name.upper()}")
        bound = [inner.bind(each) for each in arguments]
        condition = inner.condition(where) if where is not None else None
        if any(is_outer(each) for every in bound for each in fields(every)):
            raise self.text.error(node, "an aggregate over a column of the query around is not supported")
        try:
            made = aggregation("", name, bound, distinct=distinct, where=condition)
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
        if made not in self.found:
            self.found.append(made)
        return Field(f"{_NOTED}{self.found.index(made)}", made.type)

    def _window(self, node: exp.Expr) -> Expression:
        found = self.over.get(id(node))
        if found is not None:
            return found
        function = node.this.this if isinstance(node.this, exp.Anonymous) else "this function"
        raise self.text.error(
            node,
            f"{function} OVER (…) is not supported {self.where}",
            hint="the first n of each group: QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n; "
            "an aggregate of the last rows: GROUP BY over s [PARTITION BY k ROWS n] or s [RANGE 10 MINUTES]",
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


def _constant(value: Any, kind: pa.DataType) -> Callable[[Scalars, exp.Expr], Expression]:
    return lambda _self, node: Constant(node.args["this"] if value is None and kind == pa.bool_() else value, kind)


def _bytes(self: Scalars, node: exp.Expr) -> Expression:
    digits = node.name
    try:
        return Constant(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())
    except ValueError:
        raise self.text.error(node, f"'{digits}' is no number to the base 16", expected="0 to 9 and A to F") from None


def _through(self: Scalars, node: exp.Expr) -> Expression:
    return self.bind(node.this)


def _word(_: Scalars, node: exp.Expr) -> Expression:
    return Constant(node.name, pa.string())


def _invert(self: Scalars, node: exp.Expr) -> Expression:
    return self._call(node, "bitwise_not", [self.bind(node.this)])


def _alone(self: Scalars, node: exp.Expr) -> Expression:
    raise self.text.error(node, "several values in brackets stand only before IN (SELECT …)")


_RULES: dict[type[exp.Expr], Callable[[Scalars, Any], Expression]] = {
    exp.Anonymous: Scalars._function,
    exp.Between: Scalars._between,
    exp.BitwiseNot: _invert,
    exp.Boolean: _constant(None, pa.bool_()),
    exp.Bracket: Scalars._bracket,
    exp.Case: Scalars._case,
    exp.Cast: Scalars._cast,
    exp.Column: Scalars._column,
    exp.Dot: Scalars._dot,
    exp.Escape: Scalars._escape,
    exp.Exists: Scalars._exists,
    exp.Extract: Scalars._extract,
    exp.Filter: Scalars._filter,
    exp.HexString: _bytes,
    exp.In: Scalars._in,
    InList: Scalars._in_list,
    exp.Interval: Scalars._interval,
    exp.Is: Scalars._is,
    exp.Literal: Scalars._literal,
    exp.Neg: Scalars._negative,
    exp.Not: Scalars._not,
    exp.Null: _constant(None, pa.null()),
    exp.Paren: _through,
    exp.Subquery: Scalars._subquery,
    Sum: Scalars._sum,
    exp.TryCast: Scalars._cast,
    exp.Tuple: _alone,
    exp.Var: _word,
    exp.Window: Scalars._window,
}
