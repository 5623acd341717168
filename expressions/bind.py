"""Texts of options and arguments to typed expressions over one schema: columns, values, conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ..conf.errors import OptionError, SchemaError, UpstreamError
from .arrow import ArrowFunction, arrow_function
from .evaluate import BoundColumn
from .kinds import UTC
from .literals import type_of
from .nodes import Call, Constant, Expression, Field
from .places import Text
from .reader import SparkWords, tree_of
from .scalars import ColumnScope, ScalarBinder, visible_columns
from .terms import Terms
from .types import call
from .zones import in_zone, zone_of_session


class _Columns(Terms):
    """The parser of a list of columns, as between SELECT and FROM."""

    words = ("expression", "expressions")

    def _parse_statement(self) -> exp.Expr | None:
        found = exp.Tuple(expressions=self.commas(self.item))
        if self._curr:
            self.unexpected("a comma, or the end of the text")
        return found


class _Order(Terms):
    """The parser of a list as after ORDER BY."""

    words = ("order", "orders")

    def _parse_statement(self) -> exp.Expr | None:
        found = exp.Tuple(expressions=self.commas(self.ordered))
        if self._curr:
            self.unexpected("a comma, or the end of the text")
        return found


def parse_columns(text: Text) -> list[exp.Expr]:
    """Return the items of a list of columns: each an expression, one with an alias, or a star."""
    return tree_of(text, _Columns, SparkWords()).expressions


class OptionText(Text):
    """The text of an option or an argument, which ``what`` names in errors."""

    def __init__(self, sql: str, what: str) -> None:
        super().__init__(sql)
        self._what = what

    def error(self, at: Any, problem: str, *, expected: str = "", hint: str = "") -> OptionError:
        del at
        return OptionError(f"{self._what}={self.sql!r}: {problem}", expected=expected, hint=hint)

    def unknown(self, at: Any, problem: str, *, expected: str = "", hint: str = "") -> SchemaError:
        del at
        return SchemaError(f"{self._what}={self.sql!r}: {problem}", expected=expected, hint=hint)


def arrow_schema(ddl: str) -> pa.Schema:
    """Parse a schema in Spark's DDL, without Spark; raise OptionError for other text."""
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    except SqlglotError as error:
        raise OptionError(
            f"schema={ddl!r} is not a schema: {error}", expected="a DDL such as 'a INT, b STRING'"
        ) from error
    columns = table.this.expressions if isinstance(table.this, exp.Schema) else []
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.kind for column in columns):
        raise OptionError(f"schema={ddl!r} is not a schema", expected="a DDL such as 'a INT, b STRING'")
    text = OptionText(ddl, "schema")
    return pa.schema([pa.field(column.name, type_of(column.args["kind"], text)) for column in columns])


def bind_columns(text: Text, schema: pa.Schema, time_zone: str = UTC) -> list[BoundColumn]:
    """Bind a list of columns, as between SELECT and FROM. Times in text without a zone are in `time_zone`."""
    binder = ScalarBinder(text, ColumnScope(visible_columns(schema)))
    found: list[BoundColumn] = []
    for item in parse_columns(text):
        if _is_star(item):
            found += _starred(item, binder)
            continue
        named = isinstance(item, exp.Alias)
        node = item.this if named else item
        expression = binder.bind(node)
        if not named and not isinstance(node, exp.Column | exp.Dot):
            written = text.written(node)
            raise text.error(item, f"{written} has no name", hint=f"write {written} AS name")
        name = item.alias if named else _own_name(expression)
        found.append(BoundColumn(name, _zoned(expression, time_zone), text.written(node)))
    return found


def bind_value(text: Text, schema: pa.Schema, time_zone: str = UTC) -> Expression:
    """Bind one expression to a schema."""
    node = _only(text)
    return _zoned(ScalarBinder(text, ColumnScope(visible_columns(schema))).bind(node), time_zone)


def bind_condition(text: Text, tables: Mapping[str, pa.Schema], time_zone: str = UTC) -> Expression:
    """Bind one condition to the columns of tables, or of one that has no name; ``l.price`` is a field of that name."""
    columns = [
        replace(each, expression=Field(f"{table}.{each.name}", each.expression.type)) if table else each
        for table, schema in tables.items()
        for each in visible_columns(schema, table)
    ]
    node = _only(text)
    return _zoned(ScalarBinder(text, ColumnScope(columns)).condition(node), time_zone)


class BoundOrder(NamedTuple):
    """One expression by which rows are ordered."""

    expression: Expression
    descending: bool
    nulls_first: bool


def bind_order(text: Text, schema: pa.Schema) -> list[BoundOrder]:
    """Bind a list of expressions, as after ORDER BY."""
    binder = ScalarBinder(text, ColumnScope(visible_columns(schema)))
    items = tree_of(text, _Order, SparkWords()).expressions
    return [BoundOrder(binder.bind(each.this), each.args["desc"], each.args["nulls_first"]) for each in items]


def certain_condition(sql: str, schema: pa.Schema) -> ArrowFunction | None:
    """Return a condition over Arrow batches; None if its value could differ from Spark's, under any of its settings."""
    if '"' in sql or "\\" in sql:
        return None
    names = Counter(name.casefold() for name in schema.names)
    single = pa.schema([each for each in schema if names[each.name.casefold()] == 1])
    try:
        return arrow_function(bind_condition(OptionText(sql, "where"), {"": single}))
    except UpstreamError:
        return None


def paths_of(text: Text) -> list[list[str]]:
    """Return the paths to the columns and fields that a list of columns names, without stars."""
    named = [each for item in parse_columns(text) for each in item.find_all(exp.Column, exp.Dot)]
    return [path for path in map(_path, named) if path]


def copied_columns(text: Text) -> dict[str, str | None]:
    """Return the column that each item of a list copies, by the item's name (``*`` for the star); None if computed."""
    found: dict[str, str | None] = {}
    for item in parse_columns(text):
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(item, exp.Star):
            found["*"] = "*"
        elif not _is_star(item):
            plain = isinstance(inner, exp.Column) and not inner.text("table")
            found.setdefault(item.alias_or_name or inner.name, inner.name if plain else None)
    return found


def _only(text: Text) -> exp.Expr:
    items = parse_columns(text)
    if len(items) != 1 or isinstance(items[0], exp.Alias) or _is_star(items[0]):
        raise text.error(items[-1], "this is not a single expression", expected="one expression, without a name")
    return items[0]


def _zoned(expression: Expression, time_zone: str) -> Expression:
    return expression if time_zone == UTC else in_zone(expression, zone_of_session(time_zone))


def _is_star(item: exp.Expr) -> bool:
    inner = item.this if isinstance(item, exp.Alias) else item
    if isinstance(inner, exp.Dot):
        return isinstance(inner.expression, exp.Star)
    return isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star))


def _path(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Dot):
        before = _path(node.this)
        return [*before, *([] if isinstance(node.expression, exp.Star) else [node.expression.name])] if before else []
    if not isinstance(node, exp.Column):
        return []
    return [name for name in (node.text("table"), "" if isinstance(node.this, exp.Star) else node.name) if name]


def _starred(item: exp.Expr, binder: ScalarBinder) -> Sequence[BoundColumn]:
    path = [] if isinstance(item, exp.Star) else _path(item)
    if not path:
        return [BoundColumn(each.name, each.expression, each.name) for each in binder.scope.columns]
    whole = binder.scope.resolve("", path[0], item, binder.text)
    for name in path[1:]:
        whole = call("get_field", [whole, Constant(name, pa.string())])
    if not pa.types.is_struct(whole.type):
        raise binder.text.error(item, f"{whole} is of type {whole.type}", expected="a struct before .*")
    fields = [call("get_field", [whole, Constant(each.name, pa.string())]) for each in whole.type]
    return [BoundColumn(_own_name(each), each, str(each)) for each in fields]


def _own_name(expression: Expression) -> str:
    if isinstance(expression, Field):
        return expression.name
    assert isinstance(expression, Call)
    if expression.function != "get_field":  # a cast to Spark's type of the field
        return _own_name(expression.arguments[0])
    name = expression.arguments[1]
    assert isinstance(name, Constant)
    return str(name.value)
