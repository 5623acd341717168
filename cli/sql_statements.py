"""The statements of ``upstream sql``, and their parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..conf.errors import OptionError

HELP = """\
SELECT …;                                     run a query, and show its result as it changes, until Ctrl-C
CREATE MATERIALIZED VIEW name AS query;       register a query; its table is FOLDER/name
  … name WITH (weight = 2, buckets = 4) AS …    with a share under overload, and a number of parts
CREATE VIEW name AS query;                    give a query a name, to be used in others
ALTER MATERIALIZED VIEW name AS query;        give a registered query another text
ALTER MATERIALIZED VIEW name SET (weight = 2);
ACTIVATE name; DEACTIVATE name;               let a registered query run or rest
DROP MATERIALIZED VIEW name; DROP VIEW name;
EXPLAIN query or name;                        show plan, shared parts, state, and key
\\d                                            list streams, relations, queries, and views
\\d name                                       list the columns of one
\\? or \\h                                      show this help
\\q                                            quit"""


@dataclass(frozen=True)
class Select:
    """Run a query and show its result."""

    text: str


@dataclass(frozen=True)
class Explain:
    """Show the plan of a query, or of a registered one."""

    text: str


@dataclass(frozen=True)
class Create:
    """Register a query, or create a view."""

    name: str
    text: str
    view: bool = False
    weight: float = 1.0
    buckets: int = 1


@dataclass(frozen=True)
class Alter:
    """Change the text or the weight of a registered query."""

    name: str
    text: str | None = None
    weight: float | None = None


@dataclass(frozen=True)
class Activate:
    """Activate or deactivate a registered query."""

    name: str
    active: bool


@dataclass(frozen=True)
class Drop:
    """Remove a registered query or a view."""

    name: str
    view: bool = False


@dataclass(frozen=True)
class Describe:
    """List everything, or the columns of one stream, query or view."""

    name: str | None = None


@dataclass(frozen=True)
class Help:
    """Show the statements."""


@dataclass(frozen=True)
class Quit:
    """Leave the prompt."""


Statement = Select | Explain | Create | Alter | Activate | Drop | Describe | Help | Quit

_Statement = TypeVar("_Statement", bound=Statement)
_HINT = "\\? lists what can be typed"
_OPTIONS = ("weight", "buckets")


def split(buffer: str) -> tuple[list[str], str]:
    """Return the complete statements in the typed text, and the rest.

    A statement ends with a semicolon outside of strings and comments. A line that begins with a backslash is a
    statement by itself if no other is unfinished.
    """
    found: list[str] = []
    rest = buffer.lstrip()
    while rest:
        if rest.startswith("\\"):
            line, _, rest = rest.partition("\n")
            found.append(line.strip().rstrip(";").rstrip())
        else:
            end = _semicolon(rest)
            if end is None:
                break
            statement, rest = rest[:end].strip(), rest[end + 1 :]
            found += [statement] if statement else []
        rest = rest.lstrip()
    return found, rest


def parse(text: str) -> Statement:
    """Parse a statement. Text that is no statement of the prompt is a query, which is checked when it is run."""
    if text.startswith("\\"):
        return _command(text)
    # Before anything is read by tokens: after this word, sqlglot makes one of everything that follows.
    explained = re.match(r"explain\b\s*", text, re.IGNORECASE)
    if explained:
        return Explain(text[explained.end() :] or _missing(text, "a query, or the name of a registered one"))
    words = _Words(text)
    first = words.next_word()
    if first == "CREATE":
        return _create(words)
    if first == "ALTER":
        return _alter(words)
    if first == "DROP":
        words.take("MATERIALIZED", "VIEW") if words.peek() == "MATERIALIZED" else words.take("VIEW")
        view = words.before(2) != "MATERIALIZED"
        return words.end(Drop(words.name(), view))
    if first in ("ACTIVATE", "DEACTIVATE"):
        return words.end(Activate(words.name(), first == "ACTIVATE"))
    if first in ("QUIT", "EXIT") and words.peek() is None:
        return Quit()
    if first == "HELP" and words.peek() is None:
        return Help()
    return Select(text)


def _command(text: str) -> Statement:
    command, _, name = text.partition(" ")
    if command in ("\\d", "\\d+", "\\dt"):
        return Describe(name.strip().rstrip(";") or None)
    if command in ("\\?", "\\h", "\\help"):
        return Help()
    if command in ("\\q", "\\quit"):
        return Quit()
    raise OptionError(f"there is no command {command}", expected="\\d, \\?, or \\q", hint=_HINT)


def _create(words: _Words) -> Create:
    view = words.peek() != "MATERIALIZED"
    words.take("VIEW") if view else words.take("MATERIALIZED", "VIEW")
    name = words.name()
    options = {} if view or words.peek() != "WITH" else words.options("WITH")
    words.take("AS")
    text = words.rest("a query")
    weight, buckets = options.get("weight", 1.0), options.get("buckets", 1.0)
    if buckets != int(buckets):
        raise OptionError(f"buckets = {buckets:g}", expected="a whole number")
    return Create(name, text, view, weight, int(buckets))


def _alter(words: _Words) -> Alter:
    words.take("MATERIALIZED", "VIEW")
    name = words.name()
    if words.peek() == "AS":
        words.take("AS")
        return Alter(name, text=words.rest("a query"))
    options = words.options("SET")
    if set(options) != {"weight"}:
        raise OptionError(
            f"SET ({', '.join(options)})", expected="SET (weight = …)", hint="the parts of a table stay what they are"
        )
    return words.end(Alter(name, weight=options["weight"]))


def _semicolon(text: str) -> int | None:
    """Return the position of the first semicolon that ends a statement."""
    try:
        tokens = Spark().tokenize(text)
    except TokenError:  # a text or a comment that has no end yet; semicolons before it still count
        tokens = _tokens_before_the_open_end(text)
    return next((each.start for each in tokens if each.token_type is T.SEMICOLON), None)


def _tokens_before_the_open_end(text: str) -> list[Token]:
    for end in (place for place, letter in enumerate(text) if letter == ";"):
        try:
            tokens = Spark().tokenize(text[: end + 1])
        except TokenError:
            continue
        return tokens
    return []


def _missing(text: str, expected: str) -> NoReturn:
    raise OptionError(f"this is not complete: {text}", expected=expected, hint=_HINT)


class _Words:
    """The words of a statement, in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._tokens = Spark().tokenize(text)
        except TokenError as error:
            raise OptionError(f"a text or a comment has no end: {text}", expected="a closing quote") from error
        self._at = 0

    def peek(self) -> str | None:
        """Return the next word in capitals; None at the end."""
        return self._tokens[self._at].text.upper() if self._at < len(self._tokens) else None

    def before(self, places: int) -> str:
        """Return the word `places` before the next one, in capitals."""
        return self._tokens[self._at - places].text.upper()

    def next_word(self) -> str | None:
        """Take the next word."""
        found = self.peek()
        self._at += 1
        return found

    def take(self, *words: str) -> None:
        """Take these words."""
        for word in words:
            if self.peek() != word:
                self._unexpected(word)
            self._at += 1

    def name(self) -> str:
        """Take a name, as it is written."""
        if self.peek() is None or not self.peek()[:1].isidentifier():  # pyright: ignore[reportOptionalSubscript]
            self._unexpected("a name")
        self._at += 1
        return self._tokens[self._at - 1].text

    def options(self, word: str) -> dict[str, float]:
        """Take ``word (name = number, …)``."""
        self.take(word, "(")
        found: dict[str, float] = {}
        while True:
            name = self.name().lower()
            if name not in _OPTIONS or name in found:
                raise OptionError(f"{word} (… {name} …)", expected=f"{' or '.join(_OPTIONS)}, each once")
            self.take("=")
            try:
                found[name] = float(self.next_word() or "")
            except ValueError:
                self._at -= 1
                self._unexpected("a number")
            if self.peek() != ",":
                break
            self.take(",")
        self.take(")")
        return found

    def rest(self, what: str) -> str:
        """Take the remaining text as it is written."""
        if self._at >= len(self._tokens):
            self._unexpected(what)
        return self._text[self._tokens[self._at].start :].strip()

    def end(self, statement: _Statement) -> _Statement:
        """Return the statement if no word follows."""
        if self._at < len(self._tokens):
            self._unexpected("the end")
        return statement

    def _unexpected(self, expected: str) -> NoReturn:
        if self._at >= len(self._tokens):
            _missing(self._text, expected)
        got = self._tokens[self._at].text
        raise OptionError(f"'{got}' is not expected in: {self._text}", expected=expected, hint=_HINT)
