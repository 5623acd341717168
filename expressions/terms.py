"""The grammar of expressions, with Spark's precedence of operators.

It does not reuse sqlglot's grammar, which reads many dialects and translates their functions. Here, Spark's names stay
unchanged, and each node has its place in the text.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from .literals import check_range
from .nodes import CHAIN
from .reader import NOT_NAMES, STRINGS, InList, Reader, Sum
from .times import UNITS

_COMPARISONS: dict[T, type[exp.Binary]] = {
    T.EQ: exp.EQ,
    T.NEQ: exp.NEQ,
    T.NULLSAFE_EQ: exp.NullSafeEQ,
    T.GT: exp.GT,
    T.GTE: exp.GTE,
    T.LT: exp.LT,
    T.LTE: exp.LTE,
}
# From the loosest to the tightest.
_LEVELS: tuple[dict[T, type[exp.Binary]], ...] = (
    _COMPARISONS,
    {T.PIPE: exp.BitwiseOr},
    {T.CARET: exp.BitwiseXor},
    {T.AMP: exp.BitwiseAnd},
    {},  # shifts, whose operators are several tokens
    {T.PLUS: exp.Add, T.DASH: exp.Sub, T.DPIPE: exp.DPipe},
    {T.STAR: exp.Mul, T.SLASH: exp.Div, T.MOD: exp.Mod, T.DIV: exp.IntDiv},
)
_WITH_UNITS = frozenset(["TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATE_ADD", "DATEDIFF", "DATE_DIFF"])
ROWS = frozenset(["STRUCT", "ROW"])
_SHIFTS = {"<<": "SHIFTLEFT", ">>": "SHIFTRIGHT", ">>>": "SHIFTRIGHTUNSIGNED"}
# The types of 5Y, 5S, 5L, 5F, 5D, which sqlglot reads as casts.
_SUFFIXES = {
    T.TINYINT: exp.DType.TINYINT,
    T.SMALLINT: exp.DType.SMALLINT,
    T.BIGINT: exp.DType.BIGINT,
    T.FLOAT: exp.DType.FLOAT,
    T.DOUBLE: exp.DType.DOUBLE,
}
_TYPED = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")


class Terms(Reader):
    """The part of the parser that reads one expression."""

    # --- operators --------------------------------------------------------------------------------------------------

    def scalar(self) -> exp.Expr:
        start = self._curr
        parts = [self._conjunction()]
        while self._match(T.OR):
            parts.append(self._conjunction())
        return self.chain(start, exp.Or, parts)

    def _conjunction(self) -> exp.Expr:
        start = self._curr
        parts = [self._negation()]
        while self._match(T.AND):
            parts.append(self._negation())
        return self.chain(start, exp.And, parts)

    def _negation(self) -> exp.Expr:
        start = self._curr
        if self._match(T.NOT):
            return self.made(start, exp.Not(this=self._negation()))
        if self._curr.token_type is T.EXISTS and self._next.token_type is T.L_PAREN:
            self._advance()
            return self.made(start, exp.Exists(this=self.in_brackets(self.query)))
        return self._predicate()

    def query(self) -> exp.Expr:
        """Read a query; only the grammar of queries has one."""
        self.refuse("a subquery is not supported here")

    def _predicate(self) -> exp.Expr:
        start = self._curr
        this = self._level(0)
        if self._match(T.IS):
            return self._is(start, this)
        negated = self._curr.token_type is T.NOT
        if negated:
            self._advance()
        found = self._range(start, this, negated=negated)
        if found is None:
            if negated:
                self.unexpected("BETWEEN, IN, LIKE, ILIKE or RLIKE after NOT")
            return this
        return self.made(start, exp.Not(this=found)) if negated else found

    def _range(self, start: Token, this: exp.Expr, *, negated: bool) -> exp.Expr | None:
        if self._match(T.BETWEEN):
            low = self._level(1)
            self.need(T.AND, "AND between the bounds of BETWEEN")
            return self.made(start, exp.Between(this=this, low=low, high=self._level(1)))
        if self._match(T.IN):
            return self._in(start, this)
        kinds: dict[T, type[exp.Binary]] = {T.LIKE: exp.Like, T.ILIKE: exp.ILike, T.RLIKE: exp.RegexpLike}
        kind = kinds.get(self._curr.token_type)
        if kind is None:
            return None
        self._advance()
        if self._match_texts(("ANY", "ALL", "SOME"), advance=False) and self._next.token_type is T.L_PAREN:
            return self._likes(start, this, kind, negated=negated)
        found: exp.Expr = self.made(start, kind(this=this, expression=self._level(1)))
        if kind is not exp.RegexpLike and self._match(T.ESCAPE):
            if self._curr.token_type not in STRINGS:
                self.unexpected("a text of one character after ESCAPE")
            found = self.made(start, exp.Escape(this=found, expression=self.string()))
        return found

    def _likes(self, start: Token, this: exp.Expr, kind: type[exp.Binary], *, negated: bool) -> exp.Expr:
        """Read the patterns of LIKE ANY or LIKE ALL. A NOT before them negates each pattern."""
        if kind is exp.RegexpLike:
            self.refuse("RLIKE ANY and RLIKE ALL are not supported", hint="write one pattern with |")
        every = self.need_word("ANY", "ALL", "SOME") == "ALL"
        patterns = self.in_brackets(lambda: exp.Tuple(expressions=self.commas(self.scalar))).expressions
        parts = [self.made(start, kind(this=this.copy(), expression=each)) for each in patterns]
        return self.chain(start, exp.And if every != negated else exp.Or, parts)

    def _is(self, start: Token, this: exp.Expr) -> exp.Expr:
        negated = self._match(T.NOT)
        if self._match(T.NULL):
            right: exp.Expr = self.made(self._prev, exp.Null())
        elif self._match(T.TRUE) or self._match(T.FALSE):
            right = self.made(self._prev, exp.Boolean(this=self._prev.token_type is T.TRUE))
        elif self._match(T.DISTINCT):
            self.need(T.FROM, "FROM after IS DISTINCT")
            same = self.made(start, exp.NullSafeEQ(this=this, expression=self._level(1)))
            return same if negated else self.made(start, exp.Not(this=same))
        else:
            self.unexpected("NULL, TRUE, FALSE or DISTINCT FROM after IS")
        found = self.made(start, exp.Is(this=this, expression=right))
        return self.made(start, exp.Not(this=found)) if negated else found

    def _in(self, start: Token, this: exp.Expr) -> exp.Expr:
        self.need(T.L_PAREN, "( after IN")
        first = self._curr
        values = self.lists.get(first.start) if first else None
        if values is not None:
            self._advance()
            found: exp.Expr = InList(this=this, values=values)
        elif self.begins_query():
            query = self.made(first, exp.Subquery(this=self.query()))
            found = exp.In(this=this, query=query)
        else:
            found = exp.In(this=this, expressions=self.commas(self.scalar))
        self.need(T.R_PAREN, "a comma or ) in the list of IN")
        return self.made(start, found)

    def _level(self, at: int) -> exp.Expr:
        if at == len(_LEVELS):
            return self._sign()
        start = self._curr
        this = self._level(at + 1)
        kinds = _LEVELS[at]
        while kind := kinds.get(self._curr.token_type):
            operator, parts = self._curr.token_type, [this]
            while self._match(operator):
                parts.append(self._level(at + 1))
            this = self._operation(start, kind, parts)
        while not kinds and (function := self._shift()):
            this = self.made(start, exp.Anonymous(this=function, expressions=[this, self._level(at + 1)]))
        return this

    def _operation(self, start: Token, kind: type[exp.Binary], parts: list[exp.Expr]) -> exp.Expr:
        """Join operands of one operator, from left to right."""
        if kind is exp.DPipe:
            return self.chain(start, kind, parts)
        if kind is exp.Add and len(parts) > CHAIN:
            return self.made(start, Sum(expressions=parts))
        this = parts[0]
        for each in parts[1:]:
            this = self.made(start, kind(this=this, expression=each))
            this.meta["end"] = each.meta.get("end", this.meta["end"])
        return this

    def _shift(self) -> str | None:
        operator, end = "", self._curr.start
        while self._curr.token_type in (T.LT, T.GT) and self._curr.start == end and len(operator) < 3:
            operator, end = operator + self._curr.text, end + 1
            self._advance()
        if operator and operator not in _SHIFTS:
            self._retreat(self._index - len(operator))
        return _SHIFTS.get(operator)

    def _sign(self) -> exp.Expr:
        start = self._curr
        if self._curr.token_type is T.DASH and self._next.token_type not in (T.NUMBER, T.DOT):
            self._advance()
            return self.made(start, exp.Neg(this=self._sign()))
        if self._match(T.PLUS):
            return self.made(start, exp.Anonymous(this="POSITIVE", expressions=[self._sign()]))
        if self._match(T.TILDE):
            return self.made(start, exp.BitwiseNot(this=self._sign()))
        return self._postfix()

    def _postfix(self) -> exp.Expr:
        start = self._curr
        this = self._primary()
        while True:
            if self._match(T.L_BRACKET):
                index = self.scalar()
                self.need(T.R_BRACKET, "]")
                this = self.made(start, exp.Bracket(this=this, expressions=[index]))
            elif self._match(T.DOT):
                field = exp.Star() if self._match(T.STAR) else self._field()
                this = self.made(start, exp.Dot(this=this, expression=field))
            elif self._curr.token_type is T.DCOLON:
                this = self._double_colon(start, this)
            else:
                return this

    def _field(self) -> exp.Identifier:
        if self._curr.token_type is not T.IDENTIFIER and not self._curr.text.isidentifier():
            self.unexpected("a field's name")
        return self._identifier()

    def _double_colon(self, start: Token, this: exp.Expr) -> exp.Expr:
        written = self.sql[self._curr.start : self._curr.start + 2] == "::"
        self._advance()
        if not written and self._curr.token_type is not T.DECIMAL:  # 5L
            to = exp.DataType(this=_SUFFIXES[self._curr.token_type], expressions=[], nested=False)
            sign = "-" if isinstance(this, exp.Neg) else ""
            check_range(sign + this.name, _SUFFIXES[self._curr.token_type], this, self.text)
            written_number = this.find(exp.Literal)
            if self._curr.token_type in (T.FLOAT, T.DOUBLE) and written_number and "e" not in this.name.lower():
                written_number.set("this", f"{written_number.this}e0")  # a double from the start, for -0.0D
            self._advance()
        elif not written:  # 1.5BD: as precise as it is written
            self._advance()
            if "e" in this.name.lower():
                self.refuse("a decimal with an exponent is not supported", at=this, hint="write it without one")
            digits = this.name.partition(".")
            scale = len(digits[2])
            precision = max(len(digits[0].lstrip("0")) + scale, 1)
            parameters = [exp.DataTypeParam(this=exp.Literal.number(each)) for each in (precision, scale)]
            to = exp.DataType(this=exp.DType.DECIMAL, expressions=parameters, nested=False)
        else:
            to = self.data_type()
        return self.made(start, exp.Cast(this=this, to=to))

    # --- the innermost ----------------------------------------------------------------------------------------------

    def _primary(self) -> exp.Expr:
        token = self._curr
        kind = token.token_type
        if self._match(T.DASH):  # a part of the number, so that -5::STRING is '-5'
            return self.made(token, exp.Neg(this=self._primary()))
        if kind is T.NUMBER:
            self._advance()
            return self.made(token, exp.Literal(this=token.text, is_string=False))
        if kind is T.DOT and self._next.token_type is T.NUMBER and self._next.text.isdigit():
            self._advance(2)
            return self.made(token, exp.Literal(this="." + self._prev.text, is_string=False))
        if kind in STRINGS:
            return self.string()
        if kind is T.HEX_STRING:
            self._advance()
            return self.made(token, exp.HexString(this=token.text))
        if kind is T.L_PAREN:
            return self._paren()
        if kind is T.IDENTIFIER:
            return self._column()
        if not token or not token.text.isidentifier():
            self.unexpected("an expression")
        word = token.text.upper()
        if kind is T.NULL:
            self._advance()
            return self.made(token, exp.Null())
        if word in {"TRUE", "FALSE"}:
            self._advance()
            return self.made(token, exp.Boolean(this=word == "TRUE"))
        if word == "CASE":
            return self._case()
        if word == "INTERVAL" and self._next.token_type in {*STRINGS, T.NUMBER, T.DASH}:
            return self.interval()
        if word in _TYPED and self._next.token_type in STRINGS:
            to = self.data_type()
            return self.made(token, exp.Cast(this=self.string(), to=to))
        if self._next.token_type is T.L_PAREN and word not in NOT_NAMES - {"LEFT", "RIGHT"}:
            return self._call()
        if not self.is_name(token):
            self.unexpected("an expression")
        return self._column()

    def _paren(self) -> exp.Expr:
        start = self._curr
        self._advance()
        if self.begins_query():
            inner: exp.Expr = exp.Subquery(this=self.query())
        else:
            found = self.commas(self.scalar)
            inner = exp.Paren(this=found[0]) if len(found) == 1 else exp.Tuple(expressions=found)
        self.need(T.R_PAREN, ")")
        return self.made(start, inner)

    def _column(self) -> exp.Expr:
        start = self._curr
        first = self.name("a column")
        if not self._match(T.DOT):
            return self.made(start, exp.Column(this=first))
        if self._match(T.STAR):
            return self.made(start, exp.Column(this=exp.Star(), table=first))
        return self.made(start, exp.Column(this=self._field(), table=first))

    def _case(self) -> exp.Expr:
        start = self._curr
        self._advance()
        this = None if self._match_texts(("WHEN",), advance=False) else self.scalar()
        ifs: list[exp.Expr] = []
        while self._match_texts(("WHEN",)):
            begin = self._prev
            condition = self.scalar()
            self.need_word("THEN")
            ifs.append(self.made(begin, exp.If(this=condition, true=self.scalar())))
        if not ifs:
            self.unexpected("WHEN after CASE")
        default = self.scalar() if self._match_texts(("ELSE",)) else None
        self.need_word("END")
        return self.made(start, exp.Case(this=this, ifs=ifs, default=default))

    # --- calls ------------------------------------------------------------------------------------------------------

    def _call(self) -> exp.Expr:
        start = self._curr
        name = start.text.upper()
        self._advance(2)
        if name in {"CAST", "TRY_CAST"}:
            this = self.scalar()
            self.need(T.ALIAS, f"AS in {name}")
            kind = exp.TryCast if name == "TRY_CAST" else exp.Cast
            found: exp.Expr = kind(this=this, to=self.data_type())
        elif name == "EXTRACT":
            part = self.name("a part of a time, such as HOUR")
            self.need(T.FROM, "FROM in EXTRACT")
            found = exp.Extract(this=exp.Var(this=part.name.upper()), expression=self.scalar())
        elif name == "TRIM":
            found = self._trim()
        else:
            found = exp.Anonymous(this=name, expressions=self._arguments(name))
            if self._curr.token_type is T.ORDER_BY:
                found = exp.WithinGroup(this=self.made(start, found), expression=self.order())
        self.need(T.R_PAREN, "a comma or ) in the list of arguments")
        return self._over(start, self.made(start, found))

    def _trim(self) -> exp.Expr:
        """Read ``TRIM(x)``, ``TRIM(LEADING FROM x)``, ``TRIM(BOTH 'a' FROM x)`` or ``TRIM('a' FROM x)``."""
        sides = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
        ends = self._next.token_type in (T.R_PAREN, T.COMMA)
        side = "TRIM" if ends or not self._match_texts(sides) else sides[self._prev.text.upper()]
        worded = side != "TRIM" or self._prev.text.upper() == "BOTH"
        if worded and self._match(T.FROM):
            return exp.Anonymous(this=side, expressions=[self.scalar()])
        found = self._arguments("TRIM")
        if len(found) == 1 and (worded or self._curr.token_type is T.FROM):
            self.need(T.FROM, "FROM and a text in TRIM")
            found.append(self.scalar())
        return exp.Anonymous(this=side, expressions=found)

    def _arguments(self, name: str) -> list[exp.Expr]:
        if self._curr.token_type is T.R_PAREN:
            return []
        if self._curr.token_type is T.STAR:
            self._advance()
            return [self.made(self._prev, exp.Star())]
        begin = self._curr
        if self._match(T.DISTINCT):
            return [self.made(begin, exp.Distinct(expressions=self.commas(self.scalar)))]
        if name in ROWS:
            return self.commas(self.item)
        self._match_texts(("ALL",))
        if name == "POSITION":
            part = self._level(0)
            if self._match(T.IN):
                return [part, self.scalar()]
            self.need(T.COMMA, "IN or a comma in POSITION")
            return [part, *self.commas(self.scalar)]
        found = self.commas(self.scalar)
        if name == "OVERLAY" and len(found) == 1 and self._match_texts(("PLACING",)):
            found.append(self.scalar())
            self.need(T.FROM, "FROM and a place in OVERLAY")
            found.append(self.scalar())
            if self._match_texts(("FOR",)):
                found.append(self.scalar())
        if name in {"SUBSTRING", "SUBSTR"} and len(found) == 1 and self._match(T.FROM):
            found.append(self.scalar())
            if self._match_texts(("FOR",)):
                found.append(self.scalar())
        if name in _WITH_UNITS and len(found) == 3:
            found[0] = self._unit_of(name, found[0])
        return found

    def _unit_of(self, name: str, node: exp.Expr) -> exp.Expr:
        """Return the first argument of ``TIMESTAMPADD(MONTH, 1, t)``, a word that is not a column."""
        word = node.name.upper() if isinstance(node, exp.Column) and not node.text("table") else ""
        if word not in UNITS:
            self.refuse(
                f"this is not a unit of {name}",
                at=node,
                expected=", ".join(UNITS),
                hint=f"{name}(MONTH, …), without quotes",
            )
        unit = exp.Var(this=word)
        unit.meta.update(node.meta)
        return unit

    def _over(self, start: Token, this: exp.Expr) -> exp.Expr:
        if self._match_text_seq("WITHIN", "GROUP"):
            order = self.in_brackets(self.order)
            this = self.made(start, exp.WithinGroup(this=this, expression=order))
        if self._match_texts(("FILTER",)):
            self.need(T.L_PAREN, "( after FILTER")
            begin = self._curr
            self.need(T.WHERE, "WHERE")
            where = self.made(begin, exp.Where(this=self.scalar()))
            self.need(T.R_PAREN, ")")
            this = self.made(start, exp.Filter(this=this, expression=where))
        if not self._match(T.OVER):
            return this
        self.need(T.L_PAREN, "( after OVER")
        partition = self.commas(self.scalar) if self._match(T.PARTITION_BY) else None
        order = self.order() if self._curr.token_type is T.ORDER_BY else None
        spec = self._frame() if self._match_texts(("ROWS", "RANGE"), advance=False) else None
        self.need(T.R_PAREN, "PARTITION BY, ORDER BY, RANGE, ROWS or )")
        window = exp.Window(this=this, partition_by=partition, order=order, spec=spec, over="OVER")
        return self.made(start, window)

    def _frame(self) -> exp.WindowSpec:
        start = self._curr
        kind = self.need_word("ROWS", "RANGE")
        between = self._match(T.BETWEEN)
        first, side = self._bound()
        last: tuple[Any, str | None] = ("CURRENT ROW", None)
        if between:
            self.need(T.AND, "AND in the frame")
            last = self._bound()
        spec = exp.WindowSpec(kind=kind, start=first, start_side=side, end=last[0], end_side=last[1])
        return self.made(start, spec)

    def _bound(self) -> tuple[Any, str | None]:
        if self._match_text_seq("CURRENT", "ROW"):
            return "CURRENT ROW", None
        value: Any = "UNBOUNDED" if self._match_texts(("UNBOUNDED",)) else self.scalar()
        return value, self.need_word("PRECEDING", "FOLLOWING")

    def order(self) -> exp.Order:
        start = self.need(T.ORDER_BY, "ORDER BY")
        return self.made(start, exp.Order(expressions=self.commas(self.ordered)))

    def ordered(self) -> exp.Ordered:
        start = self._curr
        this = self.scalar()
        descending = not self._match(T.ASC) and self._match(T.DESC)
        first = not descending
        if self._match_texts(("NULLS",)):
            first = self.need_word("FIRST", "LAST") == "FIRST"
        return self.made(start, exp.Ordered(this=this, desc=bool(descending), nulls_first=first))

    def item(self) -> exp.Expr:
        """Read an item of a list of columns: a star, or an expression with an alias or without."""
        start = self._curr
        if self._match(T.STAR):
            return self.made(start, exp.Star())
        this = self.scalar()
        if isinstance(this, exp.Column) and isinstance(this.this, exp.Star):
            return this
        name = self.alias()
        return this if name is None else self.made(start, exp.Alias(this=this, alias=name))
