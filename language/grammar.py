"""The grammar of queries: SELECT, FROM with windows and samples, set operations, stream operators, EMIT."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.expressions.core import Expression
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..expressions.terms import Terms

STREAM_OPERATORS = ("ISTREAM", "DSTREAM", "RSTREAM")
TABLE_FUNCTIONS = ("HOP", "TUMBLE", "SESSION", "LATEST")
ARRAY_FUNCTIONS = ("EXPLODE", "EXPLODE_OUTER", "POSEXPLODE", "POSEXPLODE_OUTER", "UNNEST", "GENERATE_SERIES")

# Clauses of Spark that continuous queries lack, each with its replacement.
_NOT_HERE = {
    "OFFSET": ("OFFSET is not supported", "LIMIT n keeps the first n; number rows with QUALIFY ROW_NUMBER()"),
    "WINDOW": ("named windows are not supported", "write the window behind OVER"),
    "LATERAL": ("LATERAL is not supported", "join with a subquery, or with an array: LATERAL VIEW EXPLODE(xs) t AS x"),
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

# Results of windows in Python that queries lack, with their arguments.
_OF_OPEN_WINDOWS = {"EAGER": "emit='eager'", "LAZY": "emit='latest'"}


class StreamWindow(Expression):
    """``[PARTITION BY k RANGE 10 MINUTES SLIDE 1 MINUTE WHERE p]`` behind a stream."""

    arg_types: ClassVar[dict[str, bool]] = {
        "partition": False,
        "range": False,
        "rows": False,
        "now": False,
        "unbounded": False,
        "slide": False,
        "where": False,
    }


class StreamOperator(Expression):
    """``ISTREAM(query)``, ``DSTREAM(query)``, ``RSTREAM(query)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class TableFunction(Expression):
    """``HOP(S, t, slide, size)``, ``TUMBLE(S, t, size)``, ``SESSION(S PARTITION BY k, t, gap)``, ``LATEST(S)``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "partition": False, "expressions": False}


class ArrayFunction(Expression):
    """``UNNEST(xs)``, ``EXPLODE(xs)``, ``POSEXPLODE(xs)``, ``GENERATE_SERIES(1, n)`` in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "outer": False, "ordinality": False}


class Emit(Expression):
    """``query EMIT CHANGES``, ``EMIT EARLY``, ``EMIT ON WINDOW CLOSE``, ``EMIT PERIODIC INTERVAL '5' SECOND``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True, "every": False}


class SourceGrammar(Terms):
    """The part of the parser that reads FROM."""

    def not_here(self) -> None:
        """Refuse a clause of Spark that continuous queries do not have."""
        word = self._curr.text.upper()
        if word in _NOT_HERE and self._curr.token_type is not T.IDENTIFIER:
            problem, hint = _NOT_HERE[word]
            self.refuse(problem, hint=hint)

    def begins_query(self) -> bool:
        return super().begins_query() or (
            self._match_texts(STREAM_OPERATORS, advance=False) and self._next.token_type is T.L_PAREN
        )

    def operand(self) -> exp.Expr:
        """Read a query without brackets; the grammar of queries implements it."""
        raise NotImplementedError

    # --- sources ----------------------------------------------------------------------------------------------------

    def join(self) -> exp.Join | None:
        start = self._curr
        if self._match(T.COMMA):
            return self.made(start, exp.Join(this=self.source()))
        if self._match_text_seq("LATERAL", "VIEW"):
            return self.made(start, exp.Join(this=self._lateral_view(), kind="CROSS"))
        words: list[str] = []
        as_of = self._match_texts(("ASOF",))
        while self._match_texts(("INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI")):
            words.append(self._prev.text.upper())
        if not words and not as_of and self._curr.token_type is not T.JOIN:
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
        if as_of and kind not in {"", "INNER", "LEFT", "LEFT OUTER"}:
            self.refuse(f"there is no ASOF {kind} JOIN", at=start, expected="ASOF JOIN or ASOF LEFT JOIN")
        join = exp.Join(this=self.source(), method="ASOF" if as_of else None)
        if as_of and self._match_texts(("MATCH_CONDITION",)):
            join.set("match_condition", self.in_brackets(self.scalar))
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
        elif kind != "CROSS" and not join.args.get("match_condition"):
            self.unexpected("ON or USING", hint="CROSS JOIN pairs all rows")
        if kind == "CROSS" and (join.args.get("on") or join.args.get("using")):
            self.refuse("CROSS JOIN has no condition", at=start, hint="write JOIN … ON")
        return self.made(start, join)

    def _using(self) -> exp.Identifier:
        return self.name("a column of both sides")

    def _lateral_view(self) -> exp.Expr:
        start = self._curr
        outer = self._match_texts(("OUTER",))
        function = self._array_function()
        function.set("outer", outer)
        name = None if self._curr.token_type is T.ALIAS else self.alias()
        names = self.commas(self._using) if self._match(T.ALIAS) else None
        alias = self.made(start, exp.TableAlias(this=name, columns=names))
        return self.made(start, exp.Table(this=function, alias=alias))

    def _array_function(self) -> ArrayFunction:
        start = self._curr
        if not self._match_texts(ARRAY_FUNCTIONS):
            self.unexpected("EXPLODE or POSEXPLODE and an array")
        kind = self._prev.text.upper()
        if kind == "GENERATE_SERIES":  # its elements are those of the array that the function returns
            given = self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self.scalar))).expressions
            this: exp.Expr = self.made(start, exp.Anonymous(this=kind, expressions=given))
        else:
            this = self.in_brackets(self.scalar)
        ordinality = kind in ("UNNEST", "GENERATE_SERIES") and self._match_text_seq("WITH", "ORDINALITY")
        return self.made(start, ArrayFunction(this=this, kind=kind, ordinality=bool(ordinality)))

    def source(self) -> exp.Expr:
        start = self._curr
        if self._next.text.upper() in ARRAY_FUNCTIONS:
            self._match_texts(("LATERAL",))
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
        elif word == "TABLE" and self._next.token_type is T.L_PAREN:
            self._advance()
            this = exp.Table(this=self.in_brackets(self._table_function))
        elif word in ARRAY_FUNCTIONS and self._next.token_type is T.L_PAREN:
            this = exp.Table(this=self._array_function())
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
            if self._match_text_seq("FOR", "SYSTEM_TIME", advance=False):
                self.refuse(
                    "FOR SYSTEM_TIME is not supported",
                    hint="leave it out: a stored relation has one version; of a stream, join s [NOW] with LATEST(t)",
                )
            if start.token_type is T.L_BRACKET:
                key, found = "stream_window", self._window()
            elif self._curr.text.upper() in {"SAMPLE", "TABLESAMPLE"} and start.token_type is not T.IDENTIFIER:
                key, found = "sample", self._sample()
            else:
                name = self.alias()
                if name is None:
                    return
                names = None
                if self._curr.token_type is T.L_PAREN:
                    if not isinstance(this.this, ArrayFunction):
                        self.refuse(
                            "lists of column names are not supported here", hint="name them with AS in the subquery"
                        )
                    names = self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self._using))).expressions
                key, found = "alias", self.made(start, exp.TableAlias(this=name, columns=names))
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
            seed = self.made(token, exp.Literal.number(token.text))
            self.need(T.R_PAREN, ")")
        return self.made(start, exp.TableSample(percent=literal, seed=seed))

    def _table_function(self) -> TableFunction:
        start = self._curr
        kind = self._curr.text.upper()
        if kind not in TABLE_FUNCTIONS:
            self.refuse(
                f"there is no table function {kind}", expected=", ".join((*TABLE_FUNCTIONS, *ARRAY_FUNCTIONS[-2:]))
            )
        self._advance(2)
        self._match_texts(("TABLE",))
        this = self._function_source()
        partition = [self._column()] if kind == "SESSION" and self._match(T.PARTITION_BY) else []
        arguments: list[exp.Expr] = []
        while self._match(T.COMMA):
            described = self._match_text_seq("DESCRIPTOR", "(")
            arguments.append(self.scalar())
            if described:
                self.need(T.R_PAREN, ")")
        self.need(T.R_PAREN, "a comma or )")
        if partition:  # whose other columns come before the time and the gap
            partition, arguments = [*partition, *arguments[:-2]], arguments[-2:]
        return self.made(start, TableFunction(this=this, kind=kind, partition=partition, expressions=arguments))

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
                found["slide"] = self._span_of("SLIDE")
        elif self._match_texts(("ROWS",)):
            if self._match_texts(("UNBOUNDED",), advance=False):
                self.refuse("ROWS has a number", hint="[RANGE UNBOUNDED] keeps all rows")
            number = self.need(T.NUMBER, "a number of rows")
            found["rows"] = self.made(number, exp.Literal.number(number.text))
            self._match_texts(("PRECEDING",))
            if self._match_texts(("SLIDE",)):
                number = self.need(T.NUMBER, "a number of rows after SLIDE")
                found["slide"] = self.made(number, exp.Literal.number(number.text))
                if self._curr.token_type not in (T.R_BRACKET, T.WHERE):
                    self.unexpected("] or WHERE: ROWS slide by rows")
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


_SET_OPERATIONS: dict[str, type[exp.SetOperation]] = {
    "UNION": exp.Union,
    "EXCEPT": exp.Except,
    "MINUS": exp.Except,
    "INTERSECT": exp.Intersect,
}
_GROUPINGS: dict[str, type[exp.Expr]] = {"ROLLUP": exp.Rollup, "CUBE": exp.Cube}


class Grammar(SourceGrammar):
    """The parser of the dialect."""

    def _parse_statement(self) -> exp.Expr | None:
        start = self._curr
        if not self._curr:
            self.unexpected("SELECT, ISTREAM(…), DSTREAM(…) or RSTREAM(…)")
        this = self.query()
        if self._match_texts(("EMIT",)):
            this = self._emit(start, this)
        if self._curr:
            self.not_here()
            self.unexpected("the end of the query")
        return this

    def _emit(self, start: Token, this: exp.Expr) -> exp.Expr:
        at = self._prev
        if isinstance(this, StreamOperator):
            kind = this.args["kind"]
            self.refuse(f"EMIT and {kind} both turn the result into a stream", at=at, hint="leave one of them out")
        if self._match_texts(("CHANGES", "EARLY")):
            return self.made(start, Emit(this=this, kind=self._prev.text.upper()))
        if self._match_text_seq("ON", "WINDOW", "CLOSE"):
            return self.made(start, Emit(this=this, kind="ON WINDOW CLOSE"))
        if self._match_texts(("PERIODIC",)):
            if not self._match_texts(("INTERVAL",), advance=False):
                self.unexpected("INTERVAL after PERIODIC", hint="EMIT PERIODIC INTERVAL '5' SECONDS")
            return self.made(start, Emit(this=this, kind="PERIODIC", every=self.interval()))
        if self._match_texts(_OF_OPEN_WINDOWS, advance=False):
            word = self._curr.text.upper()
            self.refuse(
                f"EMIT {word} is not supported",
                hint="EMIT EARLY has the results of open windows, and EMIT ON WINDOW CLOSE each window's once; in "
                f"Python, stream.window('1 hour', {_OF_OPEN_WINDOWS[word]}) leaves windows out",
            )
        return self.unexpected("CHANGES, EARLY, ON WINDOW CLOSE or PERIODIC after EMIT")

    # --- queries ----------------------------------------------------------------------------------------------------

    def query(self) -> exp.Expr:
        """Read a query: WITH, set operations, ORDER BY, LIMIT."""
        start = self._curr
        ctes = self._with() if self._match(T.WITH) else None
        this = self._set_operation(start, self._intersection())
        if self._curr.token_type is T.ORDER_BY:
            this = self._modified(start, this, "order")
            this.set("order", self.order())
        if self._match(T.LIMIT):
            at = self._prev
            number = self.need(T.NUMBER, "a number after LIMIT")
            this = self._modified(start, this, "limit")
            literal = self.made(number, exp.Literal.number(number.text))
            this.set("limit", self.made(at, exp.Limit(expression=literal)))
        if ctes is not None:
            this = self._modified(start, this, "with_")
            this.set("with_", ctes)
        return self.made(start, this)

    def _modified(self, start: Token, this: exp.Expr, clause: str) -> exp.Expr:
        """Return the query, in brackets if the clause would otherwise belong to its inside."""
        if isinstance(this, StreamOperator):
            kind = this.args["kind"]
            self.refuse(f"{kind}(…) is a stream: it has no order", hint=f"write the clause inside of {kind}(…)")
        if this.args.get(clause) or (clause == "order" and this.args.get("limit")):
            return self.made(start, exp.Subquery(this=this))
        return this

    def _with(self) -> exp.With:
        start = self._prev
        if self._match_texts(("RECURSIVE",)):
            self.refuse("WITH RECURSIVE is not supported", at=self._prev)
        return self.made(start, exp.With(expressions=self.commas(self._cte)))

    def _cte(self) -> exp.CTE:
        start = self._curr
        name = self.name("a name for the subquery")
        self.need(T.ALIAS, "AS ( and a query")
        query = self.in_brackets(self.query)
        return self.made(start, exp.CTE(this=query, alias=exp.TableAlias(this=name)))

    def _set_operation(self, start: Token, this: exp.Expr) -> exp.Expr:
        while self._match_texts(("UNION", "EXCEPT", "MINUS"), advance=False):
            this = self._set_of(start, this, self._intersection)
        return this

    def _intersection(self) -> exp.Expr:
        start = self._curr
        this = self.operand()
        while self._match_texts(("INTERSECT",), advance=False):
            this = self._set_of(start, this, self.operand)
        return this

    def _set_of(self, start: Token, this: exp.Expr, rule: Any) -> exp.Expr:
        """Read the operands of one set operation: of UNION all, of others one."""
        kind, every = word = self._set_word()
        assert kind is not None
        parts = [this]
        while len(parts) == 1 or (kind is exp.Union and self._set_word() == word):
            self._advance()
            if not self._match_texts(("ALL",)):
                self._match(T.DISTINCT)
            parts.append(self._set_operand(parts[-1], rule))
        return self.chain(start, kind, parts, distinct=not every)

    def _set_word(self) -> tuple[type[exp.SetOperation] | None, bool]:
        there = self._match_texts(_SET_OPERATIONS, advance=False)
        return (_SET_OPERATIONS[self._curr.text.upper()] if there else None), self._next.text.upper() == "ALL"

    def _set_operand(self, before: exp.Expr, rule: Any) -> exp.Expr:
        begin = self._curr
        right: exp.Expr = rule()
        for each in (before, right):
            if isinstance(each, StreamOperator):
                problem = f"{each.args['kind']}(…) is a stream; set operations are over relations"
                self.refuse(problem, at=each, hint="put the set operation inside of it")
        return self.made(begin, exp.Subquery(this=right)) if isinstance(right, exp.SetOperation) else right

    def operand(self) -> exp.Expr:
        """Read one operand of a set operation: a SELECT, a stream operator, or a query in brackets."""
        start = self._curr
        if self._match(T.L_PAREN):
            inner = self.query()
            self.need(T.R_PAREN, ")")
            plain = isinstance(inner, exp.Select) and not any(
                inner.args.get(each) for each in ("order", "limit", "with_")
            )
            return inner if plain else self.made(start, exp.Subquery(this=inner))
        if self._match_texts(STREAM_OPERATORS):
            kind = self._prev.text.upper()
            inner = self.in_brackets(self.query)
            if isinstance(inner, StreamOperator):
                self.refuse(f"{kind} is of a relation, and {inner.args['kind']}(…) is a stream", at=inner)
            return self.made(start, StreamOperator(this=inner, kind=kind))
        if not self._match(T.SELECT):
            self.not_here()
            self.unexpected("SELECT", hint="a query begins with SELECT, WITH, ISTREAM(, DSTREAM( or RSTREAM(")
        return self._select(start)

    def _select(self, start: Token) -> exp.Select:
        distinct = None
        if self._match(T.DISTINCT):
            distinct = self.made(self._prev, exp.Distinct())
        else:
            self._match_texts(("ALL",))
        select = exp.Select(distinct=distinct, expressions=self.commas(self.item))
        if not self._match(T.FROM):
            self.unexpected("a comma, or FROM and a stream")
        begin = self._prev
        select.set("from_", self.made(begin, exp.From(this=self.source())))
        joins: list[exp.Join] = []
        while (join := self.join()) is not None:
            joins.append(join)
        if joins:
            select.set("joins", joins)
        self._clauses(select)
        return self.made(start, select)

    def _clauses(self, select: exp.Select) -> None:
        if self._match(T.WHERE):
            begin = self._prev
            select.set("where", self.made(begin, exp.Where(this=self.scalar())))
        if self._match(T.GROUP_BY):
            begin = self._prev
            if self._match_texts(("ALL",)):
                self.refuse("GROUP BY ALL is not supported", at=self._prev, hint="name the columns")
            groupings = self.commas(self._grouping)
            if self._curr.token_type is T.WITH and self._next.text.upper() in _GROUPINGS:
                self._advance(2)
                groupings = [self.made(begin, _GROUPINGS[self._prev.text.upper()](expressions=groupings))]
            select.set("group", self.made(begin, exp.Group(expressions=groupings)))
        if self._match(T.HAVING):
            begin = self._prev
            select.set("having", self.made(begin, exp.Having(this=self.scalar())))
        if self._match(T.QUALIFY):
            begin = self._prev
            select.set("qualify", self.made(begin, exp.Qualify(this=self.scalar())))
        self.not_here()

    def _grouping(self) -> exp.Expr:
        start = self._curr
        if self._match(T.GROUPING_SETS):
            sets = self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self._grouping)))
            return self.made(start, exp.GroupingSets(expressions=sets.expressions))
        kind = _GROUPINGS.get(self._curr.text.upper())
        if kind is not None and self._curr.token_type is not T.IDENTIFIER and self._next.token_type is T.L_PAREN:
            self._advance()
            parts = self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self._grouping)))
            return self.made(start, kind(expressions=parts.expressions))
        if self._curr.token_type is T.L_PAREN and self._next.token_type is T.R_PAREN:
            self._advance(2)
            return self.made(start, exp.Tuple(expressions=[]))
        return self.scalar()
