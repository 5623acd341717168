"""The base of all grammars: texts to trees, tokens taken or refused, names, places, types and durations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp, parser
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.expressions.core import Expression
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import EnvironmentMissingError, UpstreamError
from .nodes import left_of_chain
from .places import Text

# Words that are never a name without backquotes.
NOT_NAMES = frozenset(
    [
        "ALL",
        "AND",
        "ANTI",
        "AS",
        "BETWEEN",
        "CASE",
        "CROSS",
        "DISTINCT",
        "ELSE",
        "END",
        "EXCEPT",
        "EXISTS",
        "FROM",
        "FULL",
        "GROUP",
        "HAVING",
        "ILIKE",
        "IN",
        "INNER",
        "INTERSECT",
        "IS",
        "JOIN",
        "LEFT",
        "LIKE",
        "LIMIT",
        "MINUS",
        "NATURAL",
        "NOT",
        "NULL",
        "ON",
        "OR",
        "ORDER",
        "OUTER",
        "QUALIFY",
        "RIGHT",
        "RLIKE",
        "SELECT",
        "SEMI",
        "THEN",
        "UNION",
        "USING",
        "WHEN",
        "WHERE",
        "WITH",
        "TRUE",
        "FALSE",
        "LATERAL",
    ]
)
# Words that may follow a source or a select item: an alias of that name needs AS.
NOT_ALIASES = NOT_NAMES | {
    *("ASOF", "CLUSTER", "DISTRIBUTE", "EMIT", "FETCH", "MATCH_CONDITION", "OFFSET", "PIVOT", "SAMPLE", "SORT"),
    *("TABLESAMPLE", "UNPIVOT", "WINDOW"),
}


class Sum(Expression):
    """``a + b + c + …`` of many operands, added from left to right."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class InList(Expression):
    """``n IN (1, 2, 3, …)`` of many literals of one kind: a tuple of numbers, or of texts."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "values": True}


_Node = TypeVar("_Node", bound=exp.Expr)

STRINGS = (T.STRING, T.RAW_STRING)
_QUOTED = frozenset([*STRINGS, T.HEX_STRING, T.BIT_STRING, T.NATIONAL_STRING])
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
    "VARCHAR": exp.DType.VARCHAR,
    "CHAR": exp.DType.VARCHAR,
    "CHARACTER": exp.DType.VARCHAR,
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
_SPANS = (("DAY", "HOUR", "MINUTE", "SECOND"), ("YEAR", "MONTH"))
# In the texts of such intervals: what precedes a unit's amount, and the greatest amount.
_BEFORE = {"HOUR": " ", "MINUTE": ":", "SECOND": ":", "MONTH": "-"}
_MOST = {"HOUR": 23, "MINUTE": 59, "SECOND": 59, "MONTH": 11}
_MONTHS = {"MONTH": 1, "YEAR": 12}
UNITS_US = {
    "WEEK": 7 * 86_400_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}


class SparkWords(Spark):
    """sqlglot's dialect for Spark, where a quote that a text has twice is one, as since Spark 4.0."""

    class Tokenizer(Spark.Tokenizer):
        """The reader of words: a raw text has no such quotes, and no backslashes before others."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        STRING_ESCAPES_ALLOWED_IN_RAW_STRINGS = False


class Reader(SparkParser):
    """The base of the parser, below all rules."""

    words = ("query", "queries")

    @property
    def text(self) -> Text:
        found = self.__dict__.get("_text")
        return found if found is not None else Text(self.sql)

    @text.setter
    def text(self, text: Text) -> None:
        self.__dict__["_text"] = text

    @property
    def lists(self) -> Mapping[int, tuple[int, ...] | tuple[str, ...]]:
        """The long lists of literals by place; see :func:`take_lists`."""
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
        found = (
            f"'{self.sql[self._curr.start : self._curr.end + 1]}'" if self._curr else f"the end of the {self.words[0]}"
        )
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
        if not token or token.token_type in _QUOTED or not token.text.isidentifier():
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
        return self._curr.token_type in {T.SELECT, T.WITH}

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
        if kind is None and token.text.upper() == "TIME":
            self.refuse(
                "the type TIME is only for columns that are grouped, ordered and aggregated",
                at=token,
                hint="compare the text of a time: date_format(t, 'HH:mm:ss') < '10:00:00'",
            )
        if kind is None:
            self.unexpected("a type: " + ", ".join(sorted(_TYPES)).lower())
        self._advance()
        parameters: list[exp.DataTypeParam] = []
        if kind is exp.DType.DECIMAL and self._match(T.L_PAREN):
            parameters = self.commas(self._parameter)
            self.need(T.R_PAREN, ")")
            if len(parameters) > 2:
                self.refuse("decimal has a precision and a scale", at=token)
        if kind is exp.DType.VARCHAR:  # a text of any length, as in Spark's casts
            self.need(T.L_PAREN, f"{token.text}(40), for example; STRING has no length")
            self._parameter()
            self.need(T.R_PAREN, ")")
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
        """Read ``INTERVAL '10' MINUTES``, ``INTERVAL 1 HOUR 30 MINUTES``, or ``INTERVAL '1:30' HOUR TO MINUTE``."""
        start = self._curr
        self._advance()
        if self._curr.token_type in STRINGS and not self._is_unit(self._next):
            self._advance()
            return self._together(start, self._amounts(self._prev))
        parts = [self._amount()]
        if self._match_texts(("TO",)):
            return self._together(start, self._span(start, *parts[0]))
        while self._curr.token_type in {T.NUMBER, *STRINGS} and self._is_unit(self._next):
            parts.append(self._amount())
        return self._together(start, parts)

    @staticmethod
    def _is_unit(token: Token) -> bool:
        word = token.text.upper()
        return token.token_type not in {*STRINGS, T.IDENTIFIER} and (word in _UNITS or word.removesuffix("S") in _UNITS)

    def _amount(self) -> tuple[str, str]:
        if self._match_set(STRINGS):
            return self._prev.text.strip(), self.unit()
        sign = "-" if self._match(T.DASH) else ""
        return sign + self.need(T.NUMBER, "a number after INTERVAL").text, self.unit()

    def _amounts(self, token: Token) -> list[tuple[str, str]]:
        """Return the amounts and units in a text such as ``'1 day 2 hours'``."""
        words = token.text.upper().split()
        units = [_UNITS.get(word) or _UNITS.get(word.removesuffix("S"), "") for word in words[1::2]]
        if not words or 2 * len(units) != len(words) or "" in units:
            self.refuse(f"'{token.text}' is not an interval", at=token, hint="INTERVAL '90' MINUTES")
        return list(zip(words[::2], units, strict=True))

    def _span(self, start: Token, value: str, first: str) -> list[tuple[str, str]]:
        """Return the amounts in a text such as ``'1 02:30:00'`` of DAY TO SECOND."""
        last = self.unit()
        units = next((each for each in _SPANS if {first, last} <= {*each}), ())
        units = units[units.index(first) : units.index(last) + 1] if units else ()
        if len(units) < 2:
            self.refuse(f"there is no interval {first} TO {last}", at=start, expected="DAY TO SECOND or YEAR TO MONTH")
        pattern = "([+-]?)([0-9]+)" + "".join(f"{_BEFORE[each]}([0-9]{{1,2}})" for each in units[1:])
        found = re.fullmatch(pattern + (r"(\.[0-9]{1,6})?" if last == "SECOND" else ""), value)
        sign, *amounts = found.groups(default="") if found is not None else ("",)
        if not amounts or any(int(each) > _MOST[unit] for each, unit in zip(amounts[1:], units[1:], strict=False)):
            shape = "1-2" if last == "MONTH" else "1 02:30:00.5"
            self.refuse(f"'{value}' is not an interval {first} TO {last}", at=start, hint=f"write it like '{shape}'")
        if last == "SECOND":
            amounts[-2:] = ["".join(amounts[-2:])]
        return [(sign + each, unit) for each, unit in zip(amounts, units, strict=True)]

    def _together(self, start: Token, parts: Sequence[tuple[str, str]]) -> exp.Interval:
        """Return the sum of parts, in one unit."""
        made = [self.interval_of(start, *each) for each in parts]
        if len(made) == 1:
            return made[0]
        units = {unit for _, unit in parts}
        sizes = _MONTHS if units <= {*_MONTHS} else UNITS_US
        if not units <= {*sizes}:
            self.refuse(
                "an interval has either months or days",
                at=start,
                hint="add them one after the other: t + INTERVAL '1' MONTH + INTERVAL '2' DAYS",
            )
        unit = "MONTH" if sizes is _MONTHS else "DAY" if units <= {"DAY", "WEEK"} else "MICROSECOND"
        total = sum((Decimal(each.this.name) * sizes[each.text("unit")] for each in made), Decimal())
        amount = total / sizes[unit]
        return self.interval_of(start, str(int(amount)) if amount == int(amount) else str(amount), unit)

    def interval_of(self, start: Token, amount: str, unit: str) -> exp.Interval:
        digits = amount.removeprefix("-").removeprefix("+")
        whole = digits.isdecimal() and digits.isascii()
        if not whole and not (unit == "SECOND" and digits.replace(".", "", 1).isdecimal() and digits.isascii()):
            self.refuse(f"'{amount}' is not a number of {unit.lower()}s", at=start, expected="a whole number")
        amount = amount.removeprefix("+")
        return self.made(start, exp.Interval(this=exp.Literal.string(amount), unit=exp.Var(this=unit)))

    def one(self, trees: list[exp.Expr | None]) -> exp.Expr:
        found = [each for each in trees if each is not None]
        if len(found) != 1:
            at = found[1] if len(found) > 1 else (len(self.sql), len(self.sql))
            problem = f"the text has {len(found)} {self.words[1]}" if found else f"the text has no {self.words[0]}"
            raise self.text.error(at, problem, expected=f"one {self.words[0]}")
        return found[0]


_LEAST = 100
"""Shorter lists are read as everything else."""

_NUMBER = r"-?[0-9]{1,18}"
_TEXT = r"'[^'\\]*'"
_PARTS = re.compile(
    r"\b[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|"
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


_PAIRS = {
    ("ORDER", "BY"): T.ORDER_BY,
    ("GROUP", "BY"): T.GROUP_BY,
    ("PARTITION", "BY"): T.PARTITION_BY,
    ("GROUPING", "SETS"): T.GROUPING_SETS,
}


def joined_words(tokens: Sequence[Token]) -> list[Token]:
    """Join two words that are one keyword: sqlglot does so unless a comment is between them."""
    found: list[Token] = []
    for each in tokens:
        before = found[-1] if found else None
        kind = _PAIRS.get((before.text.upper(), each.text.upper())) if before is not None else None
        written = {*STRINGS, T.IDENTIFIER}
        if before is None or kind is None or before.token_type in written or each.token_type in written:
            found.append(each)
            continue
        text = f"{before.text} {each.text}"
        found[-1] = Token(kind, text, before.line, before.col, before.start, each.end, each.comments)
    return found


_CHARACTERS = 4_000_000
_LEVELS = 500
"""The greatest depth of a syntax tree. Long chains of AND, OR, ||, UNION and + are flat."""


def refuse_compiled() -> None:
    """Refuse ``sqlglot[c]``: compiled classes ignore the methods that a dialect overrides."""
    if not str(parser.__file__).endswith(".py"):
        raise EnvironmentMissingError(
            "sqlglot is installed compiled (sqlglot[c]), which ignores dialects of others",
            expected="the pure Python package",
            hint="pip uninstall sqlglotc",
        )


def tree_of(text: Text, grammar: type[Reader], dialect: SparkWords) -> exp.Expr:
    """Return a text's syntax tree by a grammar, or raise the text's error at a place in it."""
    refuse_compiled()
    if len(text.sql) > _CHARACTERS:
        raise text.error((0, 0), f"the text has {len(text.sql)} characters", expected=f"at most {_CHARACTERS}")
    return on_deep_stack(lambda: _parse(text, grammar, dialect))


def _parse(text: Text, grammar: type[Reader], dialect: SparkWords) -> exp.Expr:
    sql = text.sql
    words, lists = take_lists(sql)
    try:
        tokens = joined_words(dialect.tokenize(words))
    except SqlglotError as error:
        start = getattr(error, "end", None)
        at = len(sql) - 1 if start is None else start
        raise text.error((at, at), _unread(error), hint="close each quote and each comment") from None
    reader = grammar(dialect=dialect)
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


def _too_deep(text: Text, at: Any) -> UpstreamError:
    return text.error(
        at, "the query is nested too deeply", expected=f"at most {_LEVELS} levels", hint="name its parts as views"
    )


def _unread(error: SqlglotError) -> str:
    first = str(error).split("\n")[0]
    cause = str(error.__cause__ or "").split("\n")[0]
    return f"the text cannot be split into words ({cause or first})"
