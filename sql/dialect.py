"""The dialect for sqlglot: Spark's SQL with windows on streams.

``sqlglot.parse_one(text, read=ContinuousSql)`` returns a tree, and ``tree.sql(ContinuousSql)`` its text. Tokens and
standard nodes are sqlglot's. The grammar in :mod:`.grammar` and :mod:`.terms` refuses everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from sqlglot import exp, generator, parser
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import EnvironmentMissingError, QueryRefusedError
from .grammar import Grammar
from .places import Text
from .syntax import Emit, InList, StreamOperator, StreamWindow, Sum, TableFunction

_LEAST = 100
"""Shorter lists are read as everything else."""

_NUMBER = r"-?[0-9]{1,18}"
_TEXT = r"'[^'\\]*'"
_PARTS = re.compile(
    r"[rR]'[^']*'|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|"
    + "|".join(
        rf"\bIN\s*\(\s*(?P<{name}>{one}(?:\s*,\s*{one}){{{_LEAST - 1},}})\s*\)"
        for name, one in (("numbers", _NUMBER), ("texts", _TEXT))
    ),
    re.IGNORECASE | re.DOTALL,
)


def take_lists(sql: str) -> tuple[str, Mapping[int, tuple[int, ...] | tuple[str, ...]]]:
    """Replace each long list of integers or texts by a 0 of the same length; return the text and the lists by place."""
    if sql.count(",") < _LEAST:
        return sql, {}
    lists: dict[int, tuple[int, ...] | tuple[str, ...]] = {}

    def taken(found: re.Match[str]) -> str:
        name = found.lastgroup
        if name is None:
            return found.group()
        start, end = found.span(name)
        written = found.group(name)
        if name == "numbers":
            lists[start] = tuple(int(each) for each in written.split(","))
        else:
            lists[start] = tuple(each[1:-1] for each in re.findall(_TEXT, written))
        before = found.start()
        return sql[before:start] + "0".ljust(end - start) + sql[end : found.end()]

    return _PARTS.sub(taken, sql), lists


_CHARACTERS = 4_000_000
_LEVELS = 500
"""The greatest depth of a syntax tree. Long chains of AND, OR, ||, UNION and + are flat."""


class ContinuousSql(Spark):
    """SQL over streams: sqlglot's Spark dialect, with the windows and stream operators of CQL."""

    INTERSECT_BINDS_TIGHTER_THAN_UNION_AND_EXCEPT = True
    ALIAS_POST_TABLESAMPLE = True

    Parser = Grammar

    class Generator(SparkGenerator):
        """A writer of nodes in the grammar's form, without Spark's rewriting of other dialects' functions."""

        TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"

        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **generator.Generator.TRANSFORMS,
            exp.RegexpLike: lambda self, node: self.binary(node, "RLIKE"),
            exp.NullSafeEQ: lambda self, node: self.binary(node, "<=>"),
            StreamWindow: lambda self, node: self.streamwindow_sql(node),
            Sum: lambda self, node: " + ".join(self.sql(each) for each in node.expressions),
            InList: lambda self, node: self.inlist_sql(node),
            TableFunction: lambda self, node: self.tablefunction_sql(node),
            StreamOperator: lambda self, node: self.streamoperator_sql(node),
            Emit: lambda self, node: self.emit_sql(node),
        }

        def streamwindow_sql(self, node: StreamWindow) -> str:
            parts: list[str] = []
            if node.args.get("partition"):
                parts.append("PARTITION BY " + self.expressions(node, key="partition", flat=True))
            if node.args.get("now"):
                parts.append("NOW")
            elif node.args.get("unbounded"):
                parts.append("RANGE UNBOUNDED")
            elif node.args.get("range"):
                parts.append("RANGE " + self._span(node.args["range"]))
            else:
                parts.append("ROWS " + self.sql(node, "rows"))
            if node.args.get("slide"):
                parts.append("SLIDE " + self._span(node.args["slide"]))
            if node.args.get("where"):
                parts.append("WHERE " + self.sql(node, "where"))
            return "[" + " ".join(parts) + "]"

        def _span(self, node: exp.Expr) -> str:
            return f"{node.this.name} {node.text('unit')}" if node.this.name.isdigit() else self.sql(node)

        def tablefunction_sql(self, node: TableFunction) -> str:
            arguments = [self.sql(node, "this"), *(self.sql(each) for each in node.expressions)]
            return f"{node.args['kind']}({', '.join(arguments)})"

        def inlist_sql(self, node: InList) -> str:
            return f"{self.sql(node, 'this')} IN ({', '.join(map(repr, node.args['values']))})"

        def streamoperator_sql(self, node: StreamOperator) -> str:
            return f"{node.args['kind']}({self.sql(node, 'this')})"

        def emit_sql(self, node: Emit) -> str:
            kind = node.args["kind"]
            every = " " + self.sql(node, "every") if node.args.get("every") else ""
            return f"{self.sql(node, 'this')} EMIT {kind}{every}"

        def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
            return self.sql(expression, "this") + self._after(expression, sep)

        def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
            inner = expression.this
            text = self.sql(inner) if isinstance(inner, StreamOperator) else f"({self.sql(inner)})"
            text += self._after(expression, sep)
            for each in ("order", "limit"):
                text += self.sql(expression, each)
            return text

        def _after(self, node: exp.Expr, sep: str) -> str:
            window = self.sql(node, "stream_window")
            alias = self.sql(node, "alias")
            return (f" {window}" if window else "") + self.sql(node, "sample") + (f"{sep}{alias}" if alias else "")

        def interval_sql(self, expression: exp.Interval) -> str:
            return f"INTERVAL {self.sql(expression, 'this')} {self.sql(expression, 'unit')}"

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:  # noqa: ARG002
            name = "TRY_CAST" if isinstance(expression, exp.TryCast) else "CAST"
            return f"{name}({self.sql(expression, 'this')} AS {self.sql(expression, 'to')})"

        def trycast_sql(self, expression: exp.TryCast) -> str:
            return self.cast_sql(expression)

        def hexstring_sql(self, expression: exp.HexString, *_: object, **__: object) -> str:
            return f"X'{expression.name}'"

        def extract_sql(self, expression: exp.Extract) -> str:
            return f"EXTRACT({self.sql(expression, 'this')} FROM {self.sql(expression, 'expression')})"

        def bracket_sql(self, expression: exp.Bracket) -> str:
            return f"{self.sql(expression, 'this')}[{self.expressions(expression, flat=True)}]"


def refuse_compiled() -> None:
    """Refuse ``sqlglot[c]``: compiled classes ignore the methods that a dialect overrides."""
    if not str(parser.__file__).endswith(".py"):
        raise EnvironmentMissingError(
            "sqlglot is installed compiled (sqlglot[c]), which ignores dialects of others",
            expected="the pure Python package",
            hint="pip uninstall sqlglotc",
        )


def parse(sql: str, view: str = "") -> exp.Expr:
    """Return a query's syntax tree, or raise QueryRefusedError at a place in its text.

    Each node's ``meta`` holds its place. ``view`` is the view that the text defines, for errors.
    """
    refuse_compiled()
    text = Text(sql, view)
    if len(sql) > _CHARACTERS:
        raise text.error((0, 0), f"the text has {len(sql)} characters", expected=f"at most {_CHARACTERS}")
    return on_deep_stack(lambda: _parse(sql, text))


def _parse(sql: str, text: Text) -> exp.Expr:
    dialect = ContinuousSql()
    words, lists = take_lists(sql)
    try:
        tokens = dialect.tokenize(words)
    except SqlglotError as error:
        start = getattr(error, "end", None)
        at = len(sql) - 1 if start is None else start
        raise text.error((at, at), _unread(error), hint="close each quote and each comment") from None
    reader = Grammar(dialect=dialect)
    reader.text, reader.lists = text, lists
    try:
        tree = reader.one(reader.parse(tokens, sql))
    except RecursionError:
        raise _too_deep(text, (0, 0)) from None
    except IndexError:  # the parser looks beyond the last word: SELECT '1' .
        at = len(sql.rstrip()) - 1
        raise text.error((at, at), "the text ends too early", expected="the rest of the query") from None
    _check_depth(tree, text)
    return tree


def _check_depth(tree: exp.Expr, text: Text) -> None:
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > _LEVELS:
            raise _too_deep(text, level[0])
        level = [child for each in level for child in each.iter_expressions()]


def _too_deep(text: Text, at: Any) -> QueryRefusedError:
    return text.error(
        at, "the query is nested too deeply", expected=f"at most {_LEVELS} levels", hint="name its parts as views"
    )


def _unread(error: SqlglotError) -> str:
    first = str(error).split("\n")[0]
    cause = str(error.__cause__ or "").split("\n")[0]
    return f"the text cannot be split into words ({cause or first})"
