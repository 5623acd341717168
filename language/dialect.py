"""The dialect for sqlglot: Spark's SQL with windows on streams.

``sqlglot.parse_one(text, read=ContinuousSql)`` returns a tree, and ``tree.sql(ContinuousSql)`` its text. Tokens and
standard nodes are sqlglot's. The grammar in :mod:`.grammar` and :mod:`.terms` refuses everything else.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, generator
from sqlglot.generators.spark import SparkGenerator

from ..conf.column_names import quoted_text
from ..expressions.places import Text
from ..expressions.reader import InList, SparkWords, Sum, tree_of
from .grammar import ArrayFunction, Emit, Grammar, StreamOperator, StreamWindow, TableFunction


class ContinuousSql(SparkWords):
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
            ArrayFunction: lambda self, node: self.arrayfunction_sql(node),
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
            plain = isinstance(node, exp.Interval) and node.this.name.isdigit()
            return f"{node.this.name} {node.text('unit')}" if plain else self.sql(node)

        def tablefunction_sql(self, node: TableFunction) -> str:
            by = self.expressions(node, key="partition", flat=True)
            source = self.sql(node, "this") + (f" PARTITION BY {by}" if by else "")
            arguments = [source, *(self.sql(each) for each in node.expressions)]
            return f"{node.args['kind']}({', '.join(arguments)})"

        def arrayfunction_sql(self, node: ArrayFunction) -> str:
            kind, inner = node.args["kind"], self.sql(node, "this")
            text = inner if kind == "GENERATE_SERIES" else f"{kind}({inner})"
            return text + (" WITH ORDINALITY" if node.args.get("ordinality") else "")

        def inlist_sql(self, node: InList) -> str:
            values = (str(each) if isinstance(each, int) else quoted_text(each) for each in node.args["values"])
            return f"{self.sql(node, 'this')} IN ({', '.join(values)})"

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


def parse(sql: str, view: str = "") -> exp.Expr:
    """Return a query's syntax tree with places in ``meta``, or refuse it at one. ``view`` is the view it defines."""
    return tree_of(Text(sql, view), Grammar, ContinuousSql())
