"""The grammar of FROM: sources with windows and samples, table functions, joins."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType as T

from .syntax import STREAM_OPERATORS, TABLE_FUNCTIONS, StreamWindow, TableFunction
from .terms import Terms

__all__ = ["SourceGrammar"]

# Clauses of Spark that continuous queries lack, each with its replacement.
_NOT_HERE = {
    "OFFSET": ("OFFSET is not supported", "LIMIT n keeps the first n; number rows with QUALIFY ROW_NUMBER()"),
    "WINDOW": ("named windows are not supported", "write the window behind OVER"),
    "LATERAL": ("LATERAL is not supported", "join with a subquery"),
    "FETCH": ("FETCH is not supported", "write LIMIT n"),
    "SORT": ("SORT BY is not supported", "write ORDER BY … LIMIT n"),
    "SORT BY": ("SORT BY is not supported", "write ORDER BY … LIMIT n"),
    "CLUSTER BY": ("CLUSTER BY is not supported", "leave it out: the plan decides where rows go"),
    "DISTRIBUTE BY": ("DISTRIBUTE BY is not supported", "leave it out: the plan decides where rows go"),
    "PIVOT": ("PIVOT is not supported", "write an aggregate with FILTER (WHERE …) for each column"),
    "UNPIVOT": ("UNPIVOT is not supported", "write a UNION ALL of the columns"),
    "NATURAL": ("NATURAL JOIN is not supported", "name the columns: JOIN … USING (k)"),
    "GROUPING SETS": ("GROUPING SETS stands before its columns", "write GROUP BY GROUPING SETS ((a, b), (a))"),
    "VALUES": ("VALUES is not supported", "name a stream or a stored relation in FROM"),
}


class SourceGrammar(Terms):
    """The part of the parser that reads FROM."""

    def not_here(self) -> None:
        """Refuse a clause of Spark that continuous queries do not have."""
        word = self._curr.text.upper()
        if word in _NOT_HERE and self._curr.token_type is not T.IDENTIFIER:
            problem, hint = _NOT_HERE[word]
            self.refuse(problem, hint=hint)

    def operand(self) -> exp.Expr:
        """Read a query without brackets; the grammar of queries implements it."""
        raise NotImplementedError

    # --- sources ----------------------------------------------------------------------------------------------------

    def join(self) -> exp.Join | None:
        start = self._curr
        if self._match(T.COMMA):
            return self.made(start, exp.Join(this=self.source()))
        words: list[str] = []
        while self._match_texts(("INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI")):
            words.append(self._prev.text.upper())
        if not words and self._curr.token_type is not T.JOIN:
            self.not_here()
            return None
        self.need(T.JOIN, "JOIN")
        kind = " ".join(words)
        side, _, rest = kind.partition(" ")
        if kind in {"SEMI", "ANTI"}:
            side, rest = "LEFT", kind
        if kind not in {"", "INNER", "CROSS", "SEMI", "ANTI"} and not (
            (side in {"LEFT", "RIGHT", "FULL"} and rest in {"", "OUTER"})
            or (side == "LEFT" and rest in {"SEMI", "ANTI"})
        ):
            self.refuse(
                f"there is no {kind} JOIN", at=start, expected="[LEFT|RIGHT|FULL] JOIN, LEFT SEMI, LEFT ANTI, CROSS"
            )
        join = exp.Join(this=self.source())
        if kind == "CROSS":
            join.set("kind", "CROSS")
        elif side in {"LEFT", "RIGHT", "FULL"}:
            join.set("side", side)
            if rest in {"SEMI", "ANTI"}:
                join.set("kind", rest)
        else:
            join.set("kind", "INNER")
        if self._match(T.ON):
            join.set("on", self.scalar())
        elif self._match(T.USING):
            join.set("using", self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self._using))).expressions)
        elif kind != "CROSS":
            self.unexpected("ON or USING", hint="CROSS JOIN pairs all rows")
        if kind == "CROSS" and (join.args.get("on") or join.args.get("using")):
            self.refuse("CROSS JOIN has no condition", at=start, hint="write JOIN … ON")
        return self.made(start, join)

    def _using(self) -> exp.Identifier:
        return self.name("a column of both sides")

    def source(self) -> exp.Expr:
        start = self._curr
        self.not_here()
        word = self._curr.text.upper() if self._curr.token_type is not T.IDENTIFIER else ""
        this: exp.Expr
        if self._match(T.L_PAREN):
            if not (self.begins_query() or self._curr.token_type is T.L_PAREN):
                self.unexpected("a query in brackets", hint="joins are read from left to right without brackets")
            this = exp.Subquery(this=self.query())
            self.need(T.R_PAREN, ")")
        elif word in STREAM_OPERATORS and self._next.token_type is T.L_PAREN:
            this = exp.Subquery(this=self.operand())
        elif self._next.token_type is T.L_PAREN and self.is_name(self._curr) and word != "SAMPLE":
            this = exp.Table(this=self._table_function())
        else:
            this = exp.Table(this=self.name("a stream, a view, or a query in brackets"))
            if self._curr.token_type is T.DOT:
                self.refuse("names of streams have no dots", hint="put backquotes around the whole name")
        self._after_source(this)
        return self.made(start, this)

    def _after_source(self, this: exp.Expr) -> None:
        """Read a window, a sample and an alias, each at most once, in any order, as CQL has the alias first."""
        while True:
            start = self._curr
            if start.token_type is T.L_BRACKET:
                key, found = "stream_window", self._window()
            elif self._curr.text.upper() in {"SAMPLE", "TABLESAMPLE"} and start.token_type is not T.IDENTIFIER:
                key, found = "sample", self._sample()
            else:
                name = self.alias()
                if name is None:
                    return
                if self._curr.token_type is T.L_PAREN:
                    self.refuse(
                        "lists of column names are not supported here", hint="name them with AS in the subquery"
                    )
                key, found = "alias", self.made(start, exp.TableAlias(this=name))
            if this.args.get(key):
                what = {"stream_window": "window", "sample": "sample", "alias": "alias"}[key]
                self.refuse(f"this source has a second {what}", at=start)
            this.set(key, found)

    def _sample(self) -> exp.TableSample:
        start = self._curr
        word = self._curr.text.upper()
        self._advance()
        self.need(T.L_PAREN, "( and a percentage")
        number = self.need(T.NUMBER, "a percentage")
        literal = self.made(number, exp.Literal.number(number.text))
        percent = self._match_texts(("PERCENT",))
        if not percent and word == "TABLESAMPLE":
            self.unexpected("PERCENT", hint="a sample of a stream is a share of its rows: TABLESAMPLE (1 PERCENT)")
        self.need(T.R_PAREN, ")")
        seed = None
        if self._match_texts(("REPEATABLE",)):
            self.need(T.L_PAREN, "( and a seed")
            token = self.need(T.NUMBER, "a whole number as seed")
            if not token.text.isdigit():
                self.refuse(f"{token.text} is not a whole number", at=token)
            seed = exp.Literal.number(token.text)
            self.need(T.R_PAREN, ")")
        return self.made(start, exp.TableSample(percent=literal, seed=seed))

    def _table_function(self) -> TableFunction:
        start = self._curr
        kind = self._curr.text.upper()
        if kind not in TABLE_FUNCTIONS:
            self.refuse(f"there is no table function {kind}", expected=", ".join(TABLE_FUNCTIONS))
        self._advance(2)
        self._match_texts(("TABLE",))
        this = self._function_source()
        arguments: list[exp.Expr] = []
        while self._match(T.COMMA):
            described = self._match_text_seq("DESCRIPTOR", "(")
            arguments.append(self.scalar())
            if described:
                self.need(T.R_PAREN, ")")
        self.need(T.R_PAREN, "a comma or )")
        return self.made(start, TableFunction(this=this, kind=kind, expressions=arguments))

    def _function_source(self) -> exp.Expr:
        start = self._curr
        if self._match(T.L_PAREN):
            this: exp.Expr = exp.Subquery(this=self.query())
            self.need(T.R_PAREN, ")")
        elif self._curr.text.upper() in STREAM_OPERATORS and self._next.token_type is T.L_PAREN:
            this = exp.Subquery(this=self.operand())
        else:
            this = exp.Table(this=self.name("a stream"))
        if self._curr.text.upper() in {"SAMPLE", "TABLESAMPLE"}:
            this.set("sample", self._sample())
        return self.made(start, this)

    # --- windows ----------------------------------------------------------------------------------------------------

    def _window(self) -> StreamWindow:
        start = self._curr
        self._advance()
        found: dict[str, Any] = {}
        if self._match(T.PARTITION_BY):
            found["partition"] = self.commas(self._column)
        if self._match_texts(("NOW",)):
            found["now"] = True
        elif self._match_texts(("RANGE",)):
            if self._match_texts(("UNBOUNDED",)):
                found["unbounded"] = True
            else:
                found["range"] = self._span_of("RANGE")
            self._match_texts(("PRECEDING",))
            if self._match_texts(("SLIDE",)):
                if found.get("unbounded"):
                    self.refuse("SLIDE needs a RANGE that ends", at=self._prev)
                found["slide"] = self._span_of("SLIDE")
        elif self._match_texts(("ROWS",)):
            if self._match_texts(("UNBOUNDED",), advance=False):
                self.refuse("ROWS has a number", hint="[RANGE UNBOUNDED] keeps all rows")
            number = self.need(T.NUMBER, "a number of rows")
            found["rows"] = self.made(number, exp.Literal.number(number.text))
            self._match_texts(("PRECEDING",))
        else:
            self.unexpected("RANGE, ROWS or NOW in a window")
        if self._match(T.WHERE):
            found["where"] = self.scalar()
        self.need(T.R_BRACKET, "SLIDE, WHERE or ] at the end of the window")
        return self.made(start, StreamWindow(**found))

    def _span_of(self, what: str) -> exp.Interval:
        if self._match_texts(("INTERVAL",), advance=False):
            return self.interval()
        start = self._curr
        number = self.need(T.NUMBER, f"a length of time after {what}")
        if self._curr.token_type is T.R_BRACKET or self._curr.text.upper() in {"SLIDE", "PRECEDING", "WHERE"}:
            self.unexpected(f"a unit of time: {what} {number.text} SECONDS")
        return self.interval_of(start, number.text, self.unit())
