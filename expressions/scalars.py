"""Bind scalar expressions of the syntax tree to typed expressions over the columns that names can refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp

from ..conf.errors import SchemaError
from .arithmetic_types import added
from .intervals import part_of
from .kinds import BOOLEAN, DURATION
from .literals import interval, number, type_of, whole_type
from .nodes import Constant, Expression, Field
from .places import Text, near
from .reader import InList, Sum
from .terms import ROWS
from .types import call, cast, in_list, row


@dataclass(frozen=True)
class Visible:
    """One column that can be named: as ``name``, as ``table.name``, or both."""

    table: str
    name: str
    expression: Expression
    plain: bool = True
    starred: bool = True  # Included in `*`.


def visible_columns(schema: pa.Schema, table: str = "") -> list[Visible]:
    """Return the columns of a schema."""
    return [Visible(table, each.name, Field(each.name, each.type)) for each in schema]


class ColumnScope:
    """Columns in the order of ``*``. Case is ignored; of names of one table that differ by case, the exact one wins."""

    def __init__(self, columns: Iterable[Visible]) -> None:
        self.columns = tuple(columns)
        self._plain: dict[str, list[Visible]] = {}
        self._tables: dict[str, dict[str, list[Visible]]] = {}
        for each in self.columns:
            if each.plain:
                self._plain.setdefault(each.name.lower(), []).append(each)
            if each.table:
                self._tables.setdefault(each.table.lower(), {}).setdefault(each.name.lower(), []).append(each)

    def tables(self) -> set[str]:
        """Return the aliases in lower case."""
        return set(self._tables)

    def has(self, name: str) -> bool:
        """Return whether a name without a table is a column here."""
        return name.lower() in self._plain

    def found(self, table: str, name: str) -> Sequence[Visible]:
        """Return the columns that a name may mean."""
        columns = self._tables.get(table.lower(), {}) if table else self._plain
        alike = columns.get(name.lower(), [])
        exact = [each for each in alike if each.name == name]
        return exact if len(exact) == 1 and len({each.table for each in alike}) == 1 else alike

    def outer_column(self, table: str, name: str) -> Expression | None:
        """Return a column of an outer query that the name means, if there is one."""
        del table, name

    def resolve(self, table: str, name: str, at: Any, text: Text) -> Expression:
        """Return the column of the name; refuse an unknown or ambiguous one."""
        found = self.found(table, name)
        if len(found) == 1:
            return found[0].expression
        if found:
            owners = " or ".join(sorted(f"{each.table}.{each.name}" for each in found if each.table))
            raise text.unknown(at, f"'{name}' is ambiguous", hint=f"write {owners}" if owners else "give one an alias")
        outer = self.outer_column(table, name)
        if outer is not None:
            return outer
        if table and table.lower() not in self._tables:
            known = sorted({each.table for each in self.columns if each.table})
            raise text.unknown(
                at, f"there is no source '{table}' here", hint=near(table, known, all_of="use one of the sources")
            )
        if table:
            names = [each.name for each in self.columns if each.table.lower() == table.lower()]
            raise text.unknown(
                at, f"'{table}' has no column '{name}'", hint=near(name, names, all_of="use one of its columns")
            )
        names = [each.name for each in self.columns if each.plain]
        raise text.unknown(at, f"there is no column '{name}'", hint=near(name, names, all_of="use one of the columns"))


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


def check_steady(node: exp.Expr, name: str, text: Text) -> None:
    """Refuse a function that has another value at each evaluation."""
    if name in _UNSTEADY:
        raise text.error(
            node,
            f"{name.upper()} is another value at each evaluation, so a replayed batch would give other rows",
            hint="use the stream's event time, a window, or in a query WHERE t > now() - INTERVAL '1' HOUR",
        )


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return the expression without its brackets."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


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


class ScalarBinder:
    """A binder of the expressions at one place of a text, which ``where`` names in errors."""

    rules: ClassVar[Mapping[type[exp.Expr], Callable[[Any, Any], Expression]]]

    def __init__(self, text: Text, scope: ColumnScope, where: str = "here") -> None:
        self.text = text
        self.scope = scope
        self.where = where

    def bind(self, node: exp.Expr) -> Expression:
        operator = _OPERATORS.get(type(node))
        if operator is not None:
            found = self.call(node, operator, [self.bind(node.this), self.bind(node.expression)])
            return self.text.noted(found, node)
        rule = self.rules.get(type(node))
        if rule is None:
            raise self.text.error(node, f"this is not supported {self.where}")
        return self.text.noted(rule(self, node), node)

    def condition(self, node: exp.Expr) -> Expression:
        """Bind an expression, and refuse it unless it is boolean, or null where Spark takes it for one."""
        found = self.bind(node)
        if pa.types.is_boolean(found.type):
            return found
        if not pa.types.is_null(found.type):
            raise self.text.error(
                node, f"this is a {found.type}, not a condition", expected="a boolean", hint="compare it: … <> 0"
            )
        above = node.parent
        while isinstance(above, exp.Paren):
            above = above.parent
        if not isinstance(above, exp.And | exp.Having):
            raise self.text.error(
                node, "this is NULL, not a condition", expected="a boolean", hint="write CAST(NULL AS BOOLEAN)"
            )
        return cast(found, BOOLEAN)

    def call(self, node: exp.Expr, function: str, arguments: Sequence[Expression]) -> Expression:
        """Return a call; an error points at the node."""
        try:
            return call(function, arguments)
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _sum(self, node: exp.Expr) -> Expression:
        """Add from left to right; operands of one type become one call, however many they are."""
        found, *others = (self.bind(each) for each in node.expressions)
        for each in others:
            found = added(self.call(node, "add", [found, each]))
        return found

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
        return self.scope.resolve(table, name, node, self.text)

    def _field(self, node: exp.Expr, whole: Expression, name: str) -> Expression:
        try:
            return call("get_field", [whole, Constant(name, pa.string())])
        except SchemaError as error:
            raise self.text.unknown(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _dot(self, node: exp.Expr) -> Expression:
        if isinstance(node.expression, exp.Star):
            raise self.text.error(node, "* stands only in the list of SELECT")
        return self._field(node, self.bind(node.this), node.expression.name)

    def _bracket(self, node: exp.Expr) -> Expression:
        whole, index = self.bind(node.this), self.bind(node.expressions[0])
        if pa.types.is_struct(whole.type) and isinstance(index, Constant) and isinstance(index.value, str):
            return self._field(node, whole, index.value)
        return self.call(node, "get_item", [whole, index])

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
        return self.call(node, "negate", [self.bind(node.this)])

    def _not(self, node: exp.Expr) -> Expression:
        inner = unwrapped(node.this)
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return self.call(node, "is_not_null", [self.bind(inner.this)])
        return self.call(node, "not", [self.bind(node.this)])

    def _is(self, node: exp.Expr) -> Expression:
        this = self.bind(node.this)
        if isinstance(node.expression, exp.Null):
            return self.call(node, "is_null", [this])
        if not (pa.types.is_boolean(this.type) or pa.types.is_null(this.type)):
            raise self.text.error(node, f"IS TRUE and IS FALSE are of conditions, not of {this.type}")
        return self.call(node, "eq_null_safe", [this, self.bind(node.expression)])

    def _in(self, node: exp.Expr) -> Expression:
        return self.call(node, "in", [self.bind(node.this), *(self.bind(each) for each in node.expressions)])

    def _in_list(self, node: exp.Expr) -> Expression:
        value, values = self.bind(node.this), node.args["values"]
        found = in_list(value, values)
        if found is not None:
            return found
        kind = type(values[0])
        made = [Constant(each, pa.string() if kind is str else whole_type(each)) for each in dict.fromkeys(values)]
        return self.call(node, "in", [value, *made])

    def _between(self, node: exp.Expr) -> Expression:
        return self.call(
            node, "between", [self.bind(node.this), self.bind(node.args["low"]), self.bind(node.args["high"])]
        )

    def _escape(self, node: exp.Expr) -> Expression:
        like = node.this
        name = "ilike" if isinstance(like, exp.ILike) else "like"
        if len(node.expression.name) != 1:
            raise self.text.error(node.expression, "ESCAPE has one character")
        return self.call(node, name, [self.bind(like.this), self.bind(like.expression), self.bind(node.expression)])

    def _case(self, node: exp.Expr) -> Expression:
        arguments: list[Expression] = []
        value = self.bind(node.this) if node.this is not None else None
        for each in node.args["ifs"]:
            test = self.bind(each.this)
            arguments.append(test if value is None else self.call(each, "eq", [value, test]))
            arguments.append(self.bind(each.args["true"]))
        default = node.args.get("default")
        arguments.append(Constant(None, pa.null()) if default is None else self.bind(default))
        return self.call(node, "case", arguments)

    def _extract(self, node: exp.Expr) -> Expression:
        part, value = node.name.lower(), self.bind(node.expression)
        try:
            return part_of(part, value) if value.type == DURATION else call(_PARTS.get(part, part), [value])
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def row(self, node: exp.Expr) -> Expression:
        """Bind ``(a, b)``, ``STRUCT(a, b AS c)`` or ``ROW(a, b)``; as in Spark, columns give their names to fields."""
        parts = [unwrapped(each) for each in node.expressions]
        names = [
            each.alias or each.name
            if isinstance(each, exp.Alias | exp.Column)
            else each.expression.name
            if isinstance(each, exp.Dot)
            else f"col{at + 1}"
            for at, each in enumerate(parts)
        ]
        values = [self.bind(each.this if isinstance(each, exp.Alias) else each) for each in parts]
        try:
            return row(values, names) if values else call("struct", values)
        except SchemaError as error:
            raise self.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None

    def _function(self, node: exp.Expr) -> Expression:
        name = node.this.lower()
        if node.this in ROWS:
            return self.row(node)
        check_steady(node, name, self.text)
        if any(isinstance(each, exp.Star | exp.Distinct) for each in node.expressions):
            raise self.text.error(node, f"{name.upper()} looks at other rows, which is not supported {self.where}")
        return self.call(node, name, [self.bind(each) for each in node.expressions])


def _constant(value: Any, kind: pa.DataType) -> Callable[[ScalarBinder, exp.Expr], Expression]:
    return lambda _self, node: Constant(node.args["this"] if value is None and kind == pa.bool_() else value, kind)


def _bytes(self: ScalarBinder, node: exp.Expr) -> Expression:
    digits = node.name
    try:
        return Constant(bytes.fromhex("0" * (len(digits) % 2) + digits), pa.binary())
    except ValueError:
        raise self.text.error(
            node, f"'{digits}' is not a number to the base 16", expected="0 to 9 and A to F"
        ) from None


def _through(self: ScalarBinder, node: exp.Expr) -> Expression:
    return self.bind(node.this)


def _word(_: ScalarBinder, node: exp.Expr) -> Expression:
    return Constant(node.name, pa.string())


def _invert(self: ScalarBinder, node: exp.Expr) -> Expression:
    return self.call(node, "bitwise_not", [self.bind(node.this)])


def _other_rows(self: ScalarBinder, node: exp.Expr) -> Expression:
    raise self.text.error(node, f"OVER, FILTER and ORDER BY look at other rows, which is not supported {self.where}")


ScalarBinder.rules = {
    exp.Anonymous: ScalarBinder._function,
    exp.Between: ScalarBinder._between,
    exp.BitwiseNot: _invert,
    exp.Boolean: _constant(None, pa.bool_()),
    exp.Bracket: ScalarBinder._bracket,
    exp.Case: ScalarBinder._case,
    exp.Cast: ScalarBinder._cast,
    exp.Column: ScalarBinder._column,
    exp.Dot: ScalarBinder._dot,
    exp.Escape: ScalarBinder._escape,
    exp.Extract: ScalarBinder._extract,
    exp.Filter: _other_rows,
    exp.WithinGroup: _other_rows,
    exp.HexString: _bytes,
    exp.In: ScalarBinder._in,
    InList: ScalarBinder._in_list,
    exp.Interval: ScalarBinder._interval,
    exp.Is: ScalarBinder._is,
    exp.Literal: ScalarBinder._literal,
    exp.Neg: ScalarBinder._negative,
    exp.Not: ScalarBinder._not,
    exp.Null: _constant(None, pa.null()),
    exp.Paren: _through,
    Sum: ScalarBinder._sum,
    exp.TryCast: ScalarBinder._cast,
    exp.Tuple: ScalarBinder.row,
    exp.Var: _word,
    exp.Window: _other_rows,
}
