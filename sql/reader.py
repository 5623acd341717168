"""The base of all grammar rules: tokens taken or refused, names, places, types and durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..expressions.nodes import left_of_chain
from .places import Text
from .syntax import NOT_ALIASES, NOT_NAMES, STREAM_OPERATORS

_Node = TypeVar("_Node", bound=exp.Expr)

STRINGS = (T.STRING, T.RAW_STRING)
_TYPES = {
    "BOOLEAN": exp.DType.BOOLEAN,
    "TINYINT": exp.DType.TINYINT,
    "BYTE": exp.DType.TINYINT,
    "SMALLINT": exp.DType.SMALLINT,
    "SHORT": exp.DType.SMALLINT,
    "INT": exp.DType.INT,
    "INTEGER": exp.DType.INT,
    "BIGINT": exp.DType.BIGINT,
    "LONG": exp.DType.BIGINT,
    "FLOAT": exp.DType.FLOAT,
    "REAL": exp.DType.FLOAT,
    "DOUBLE": exp.DType.DOUBLE,
    "STRING": exp.DType.TEXT,
    "BINARY": exp.DType.BINARY,
    "DATE": exp.DType.DATE,
    "TIMESTAMP": exp.DType.TIMESTAMP,
    "TIMESTAMP_LTZ": exp.DType.TIMESTAMPLTZ,
    "TIMESTAMP_NTZ": exp.DType.TIMESTAMPNTZ,
    "DECIMAL": exp.DType.DECIMAL,
    "DEC": exp.DType.DECIMAL,
    "NUMERIC": exp.DType.DECIMAL,
}
_UNITS = {
    "WEEK": "WEEK",
    "DAY": "DAY",
    "HOUR": "HOUR",
    "MINUTE": "MINUTE",
    "SECOND": "SECOND",
    "MILLISECOND": "MILLISECOND",
    "MICROSECOND": "MICROSECOND",
    "MONTH": "MONTH",
    "YEAR": "YEAR",
}


class Reader(SparkParser):
    """The base of the parser, below all rules."""

    @property
    def text(self) -> Text:
        found = self.__dict__.get("_text")
        return found if found is not None else Text(self.sql)

    @text.setter
    def text(self, text: Text) -> None:
        self.__dict__["_text"] = text

    @property
    def lists(self) -> Mapping[int, tuple[int, ...] | tuple[str, ...]]:
        """The long lists of literals by place; see :func:`~.literal_lists.take_lists`."""
        return self.__dict__.get("_lists", {})

    @lists.setter
    def lists(self, lists: Mapping[int, tuple[int, ...] | tuple[str, ...]]) -> None:
        self.__dict__["_lists"] = lists

    # --- what all rules use -----------------------------------------------------------------------------------------

    def refuse(self, problem: str, *, at: Any = None, expected: str = "", hint: str = "") -> NoReturn:
        """Raise an error that points at a token, a node, or the next token."""
        token = at or self._curr
        if isinstance(token, Token):
            place = (token.start, token.end) if token else (len(self.sql), len(self.sql))
            raise self.text.error(place, problem, expected=expected, hint=hint)
        raise self.text.error(token, problem, expected=expected, hint=hint)

    def unexpected(self, expected: str, *, hint: str = "") -> NoReturn:
        found = f"'{self.sql[self._curr.start : self._curr.end + 1]}'" if self._curr else "the end of the query"
        self.refuse(f"{found} is not expected here", expected=expected, hint=hint)

    def made(self, start: Token | exp.Expr, node: _Node) -> _Node:
        """Record a node's place: from a token, or an earlier node, to the last token read."""
        meta = node.meta
        meta["start"] = start.start if isinstance(start, Token) else start.meta.get("start", 0)
        meta["end"] = self._prev.end if self._prev else 0
        return node

    def chain(self, start: Token, kind: type[exp.Expr], parts: Sequence[exp.Expr], **more: object) -> exp.Expr:
        """Join parts by an associative operator, as a balanced tree where they are many, so that it stays flat."""
        if len(parts) == 1:
            return parts[0]
        half = left_of_chain(len(parts))
        right = self.chain(start, kind, parts[half:], **more)
        node = kind(this=self.chain(start, kind, parts[:half], **more), expression=right, **more)
        node.meta.update(start=parts[0].meta.get("start", start.start), end=parts[-1].meta.get("end", self._prev.end))
        return node

    def need(self, token_type: T, what: str) -> Token:
        if not self._match(token_type):
            self.unexpected(what)
        return self._prev

    def need_word(self, *words: str) -> str:
        if not self._match_texts(words):
            self.unexpected(" or ".join(words))
        return self._prev.text.upper()

    def commas(self, rule: Callable[[], _Node]) -> list[_Node]:
        found = [rule()]
        while self._match(T.COMMA):
            found.append(rule())
        return found

    def in_brackets(self, rule: Callable[[], _Node]) -> _Node:
        self.need(T.L_PAREN, "(")
        found = rule()
        self.need(T.R_PAREN, ")")
        return found

    def is_name(self, token: Token, *, alias: bool = False) -> bool:
        if token.token_type is T.IDENTIFIER:
            return True
        if not token or token.token_type in STRINGS or not token.text.isidentifier():
            return False
        return token.text.upper() not in (NOT_ALIASES if alias else NOT_NAMES)

    def name(self, what: str) -> exp.Identifier:
        if not self.is_name(self._curr):
            hint = "put backquotes around a name that is also a word of the language" if self._curr else ""
            self.unexpected(what, hint=hint)
        return self._identifier()

    def _identifier(self) -> exp.Identifier:
        token = self._curr
        self._advance()
        return self.made(token, exp.Identifier(this=token.text, quoted=token.token_type is T.IDENTIFIER))

    def alias(self) -> exp.Identifier | None:
        if self._match(T.ALIAS):
            return self.name("a name after AS")
        return self._identifier() if self.is_name(self._curr, alias=True) else None

    def begins_query(self) -> bool:
        if self._curr.token_type in {T.SELECT, T.WITH}:
            return True
        return self._match_texts(STREAM_OPERATORS, advance=False) and self._next.token_type is T.L_PAREN

    def string(self) -> exp.Literal:
        """Read a text; adjacent ones are joined."""
        token = self._curr
        parts: list[str] = []
        while self._curr.token_type in STRINGS:
            parts.append(self._curr.text)
            self._advance()
        return self.made(token, exp.Literal(this="".join(parts), is_string=True))

    def data_type(self) -> exp.DataType:
        token = self._curr
        kind = _TYPES.get(token.text.upper()) if token.token_type is not T.IDENTIFIER else None
        if kind is None:
            self.unexpected("a type: " + ", ".join(sorted(_TYPES)).lower())
        self._advance()
        parameters: list[exp.DataTypeParam] = []
        if kind is exp.DType.DECIMAL and self._match(T.L_PAREN):
            parameters = self.commas(self._parameter)
            self.need(T.R_PAREN, ")")
            if len(parameters) > 2:
                self.refuse("decimal has a precision and a scale", at=token)
        return self.made(token, exp.DataType(this=kind, expressions=parameters, nested=False))

    def _parameter(self) -> exp.DataTypeParam:
        token = self.need(T.NUMBER, "a number of digits")
        if not token.text.isdigit():
            self.refuse(f"{token.text} is not a number of digits", at=token)
        return exp.DataTypeParam(this=exp.Literal.number(token.text))

    # --- intervals --------------------------------------------------------------------------------------------------

    def unit(self) -> str:
        word = self._curr.text.upper()
        found = _UNITS.get(word) or _UNITS.get(word.removesuffix("S"))
        if found is None or self._curr.token_type in {*STRINGS, T.IDENTIFIER}:
            self.unexpected("a unit of time: " + ", ".join(each + "S" for each in _UNITS))
        self._advance()
        return found

    def interval(self) -> exp.Interval:
        """Read ``INTERVAL '10' MINUTES``, ``INTERVAL 10 MINUTES`` or ``INTERVAL '10 minutes'``."""
        start = self._curr
        self._advance()
        if self._match_set(STRINGS):
            value = self._prev.text.strip()
            amount, _, unit = value.partition(" ")
            if unit:
                found = _UNITS.get(unit.strip().upper()) or _UNITS.get(unit.strip().upper().removesuffix("S"))
                if found is None:
                    self.refuse(
                        f"'{value}' is not an interval of one unit", at=self._prev, hint="INTERVAL '90' MINUTES"
                    )
                return self.interval_of(start, amount, found)
            return self.interval_of(start, amount, self.unit())
        sign = "-" if self._match(T.DASH) else ""
        amount = sign + self.need(T.NUMBER, "a number after INTERVAL").text
        return self.interval_of(start, amount, self.unit())

    def interval_of(self, start: Token, amount: str, unit: str) -> exp.Interval:
        digits = amount.removeprefix("-").removeprefix("+")
        whole = digits.isdecimal() and digits.isascii()
        if not whole and not (unit == "SECOND" and digits.replace(".", "", 1).isdecimal() and digits.isascii()):
            self.refuse(f"'{amount}' is not a number of {unit.lower()}s", at=start, expected="a whole number")
        if self._match_texts(("TO",)):
            self.refuse("intervals of several units are not supported", at=start, hint="INTERVAL '90' MINUTES")
        amount = amount.removeprefix("+")
        return self.made(start, exp.Interval(this=exp.Literal.string(amount), unit=exp.Var(this=unit)))
