"""Statements that define, change and show a job, and their parser: of files, of the prompt, and of programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token
from sqlglot.tokenizer_core import TokenType as T

from ..conf.column_names import quoted
from ..conf.errors import OptionError
from ..conf.locations import source_address
from ..conf.options import duration_argument
from ..conf.secrets import check_address, is_secret
from ..expressions.reader import STRINGS, SparkWords

HELP = """\
SELECT …;                                     run a query, and show its result as it changes, until Ctrl-C
CREATE SOURCE name FROM 'path' WITH (key = 'column', event_time = 'column', option = value, …);
                                              declare a stream, before the job starts
CREATE TABLE name FROM 'path';                name a Delta table, as it is now; REFRESH TABLE name; reads it again
CREATE MATERIALIZED VIEW name AS query;       register a query; its table is FOLDER/name
  … name WITH (weight = 2, buckets = 4, lateness = '5 minutes') AS …
                                              with a share under overload, parts, and time for late rows
  … name WITH (queue = 'in-place', budget = 'auto', access_interval = '10 s') AS …
                                              with a queue before its functions, for the newest rows of a stream;
                                              key_weight = 'column or expression' counts a key's staleness
CREATE FUNCTION name(column DOUBLE, …) RETURNS DOUBLE AS 'module:function';
                                              declare a function in Python over Arrow arrays
CREATE VIEW name AS query;                    give a query a name, to be used in others
ALTER MATERIALIZED VIEW name AS query;        give a registered query another text
ALTER MATERIALIZED VIEW name SET (weight = 2); or the budget of its queue
ALTER MATERIALIZED VIEW name PAUSE;           stop a registered query; RESUME restarts it
  … name PAUSE KEEP STATE;                      stop writing its table; RESUME continues with complete results
DROP MATERIALIZED VIEW name;                  or VIEW, TABLE, FUNCTION; with CASCADE also what reads it
DROP MATERIALIZED VIEW name PURGE;            the job also deletes its table, before its next batch
EXPLAIN query or name;                        show plan, shared parts, state, and key
SHOW SOURCES;                                 or TABLES, VIEWS, MATERIALIZED VIEWS, FUNCTIONS
SHOW CREATE name;                             show the statement that made it
DESCRIBE name;                                list the columns of one; \\d name does the same, and \\d lists everything
\\? or \\h                                      show this help
\\q                                            quit"""

Kind = Literal["SOURCE", "TABLE", "VIEW", "MATERIALIZED VIEW", "FUNCTION"]


@dataclass(frozen=True)
class Select:
    """Run a query and show its result."""

    text: str


@dataclass(frozen=True)
class Explain:
    """Show the plan of a query, or of a registered one."""

    text: str


@dataclass(frozen=True)
class Environment:
    """The value of a variable of the environment, which is read where the source starts and kept nowhere."""

    variable: str


@dataclass(frozen=True)
class CreateSource:
    """Declare a stream."""

    name: str
    path: str | None  # None for a connector that needs none
    options: Mapping[str, str | Environment] = field(default_factory=dict)  # by name, as written
    statement: str = field(default="", compare=False)  # as written


@dataclass(frozen=True)
class CreateTable:
    """Name a stored table, as it is now."""

    name: str
    path: str
    statement: str = field(default="", compare=False)  # as written


@dataclass(frozen=True)
class CreateFunction:
    """Declare a function in Python."""

    name: str
    parameters: str  # their names and types
    returns: str  # a type
    place: str  # module:function
    statement: str = field(default="", compare=False)  # as written


@dataclass(frozen=True)
class Create:
    """Register a query, or create a view."""

    name: str
    text: str
    view: bool = False
    weight: float = 1.0
    buckets: int = 1
    lateness_us: int = 0
    queue: Mapping[str, str] = field(default_factory=dict[str, str])  # its options, by name
    statement: str = field(default="", compare=False)  # as written


@dataclass(frozen=True)
class Alter:
    """Change the text, the weight or the budget of a registered query, pause or resume it."""

    name: str
    text: str | None = None
    weight: float | None = None
    active: bool | None = None
    keep_state: bool = False  # while paused
    budget: str | None = None


@dataclass(frozen=True)
class Refresh:
    """Read a stored table again."""

    name: str


@dataclass(frozen=True)
class Drop:
    """Remove something; with `cascade` also what names it, with `purge` also a materialized view's table."""

    kind: Kind
    name: str
    cascade: bool = False
    purge: bool = False


@dataclass(frozen=True)
class Show:
    """List everything of one kind."""

    kind: Kind


@dataclass(frozen=True)
class ShowCreate:
    """Show the statement that made something."""

    name: str


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


Definition = CreateSource | CreateTable | CreateFunction | Create
"""What a job's file is made of."""

Statement = Definition | Select | Explain | Alter | Refresh | Drop | Show | ShowCreate | Describe | Help | Quit

_Statement = TypeVar("_Statement", bound=Statement)
_HINT = "\\? lists what can be typed"
_NUMBERS = ("weight", "buckets")
_OF_QUEUE = ("queue", "budget", "access_interval", "key_weight")
_ELSEWHERE = {
    "lateness": "it is fixed: create the view under another name, WITH (lateness = '10 minutes')",
    "batch_duration": "the job has it: upstream run --batch-duration, or queries.start(batch_duration=…)",
    "dead_letters": "a source has it: CREATE SOURCE … WITH (dead_letters = 'place')",
    **dict.fromkeys(("late", "dead_letter_rows"), "a source has it: CREATE SOURCE … WITH (dead_letter_rows = 'late')"),
}
_KINDS: tuple[Kind, ...] = ("SOURCE", "TABLE", "VIEW", "MATERIALIZED VIEW", "FUNCTION")


def split(buffer: str) -> tuple[list[str], str]:
    """Return the complete statements in the typed text, and the rest.

    A statement ends with a semicolon outside of strings and comments. A line that begins with a backslash is a whole
    statement if no other is unfinished.
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
    """Parse a statement. Text that is not a statement of the prompt is a query, which is checked when it is run."""
    if text.startswith("\\"):
        return _command(text)
    words = _Words(text)
    # sqlglot makes one token of everything that follows these words.
    bare = text[words.start :]
    begun = re.match(r"(explain|show)\b\s*", bare, re.IGNORECASE)
    if begun:
        rest = bare[begun.end() :]
        if begun[1].upper() == "SHOW":
            return _show(text, rest)
        return Explain(rest or _missing(text, "a query, or the name of a registered one"))
    first = words.next_word()
    if first == "CREATE":
        return _create(words, text)
    if first == "ALTER":
        return _alter(words)
    if first == "DROP":
        kind = words.kind()
        name = words.name()
        cascade = words.given("CASCADE")
        return words.end(Drop(kind, name, cascade, kind == "MATERIALIZED VIEW" and words.given("PURGE")))
    if first == "REFRESH":
        words.take("TABLE")
        return words.end(Refresh(words.name()))
    if first in ("DESCRIBE", "DESC"):
        return words.end(Describe(words.name()))
    if first in ("QUIT", "EXIT") and words.peek() is None:
        return Quit()
    if first == "HELP" and words.peek() is None:
        return Help()
    return Select(text)


def text_of(text: str | os.PathLike[str]) -> str:
    """Return a job's text, or that of its file."""
    path = os.fspath(text)
    if isinstance(text, str) and not (path.endswith(".sql") and "\n" not in path):
        return text
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the file {path} cannot be read: {error}", expected="a file of SQL in UTF-8") from error


def quoted_name(name: str) -> str:
    """Return a name as a statement has it."""
    return name if name.isidentifier() else quoted(name)


def script(text: str) -> Iterator[Statement]:
    """Yield the statements of a file. The last one needs no semicolon."""
    found, rest = split(text)
    for each in [*found, rest.strip()]:
        if each and _Words(each).peek() is not None:
            yield parse(each)


def ended(statement: str) -> str:
    """Return a statement with its semicolon, on a line of its own after a comment of a line."""
    return statement + (";" if _semicolon(statement + ";") == len(statement) else "\n;")


def _show(text: str, rest: str) -> Show | ShowCreate:
    words = _Words(rest)
    if words.given("CREATE"):
        return words.end(ShowCreate(words.name()))
    wanted = " ".join(filter(None, (words.next_word(), words.next_word())))
    for kind in _KINDS:
        if wanted == f"{kind}S":
            return words.end(Show(kind))
    raise OptionError(
        f"this cannot be shown: {text}", expected="SHOW " + ", ".join(f"{each}S" for each in _KINDS), hint=_HINT
    )


def _command(text: str) -> Statement:
    command, _, name = text.partition(" ")
    if command in ("\\d", "\\d+", "\\dt"):
        return Describe(name.strip().rstrip(";") or None)
    if command in ("\\?", "\\h", "\\help"):
        return Help()
    if command in ("\\q", "\\quit"):
        return Quit()
    raise OptionError(f"there is no command {command}", expected="\\d, \\?, or \\q", hint=_HINT)


def _create(words: _Words, text: str) -> Definition:
    kind = words.kind()
    name = words.name()
    if kind == "SOURCE":
        path = check_address(words.text()) if words.given("FROM") else None
        options = words.options() if words.given("WITH") else {}
        names = {each.lower() for each in options}
        texts = {each: value for each, value in options.items() if isinstance(value, str)}
        secret = next((each for each, value in texts.items() if is_secret(each, value)), None)
        if secret is not None:
            raise OptionError(
                f"CREATE SOURCE {name} has the value of {secret}, which the checkpoint would keep",
                expected=f"{secret} = env('NAME')",
                hint="set a variable of the environment where the job starts",
            )
        if "key" not in names and not _names_its_key(path, options):
            raise OptionError(
                f"CREATE SOURCE {name} has no key",
                expected="WITH (key = 'column, …')",
                hint="only change events and latest tables name it",
            )
        if path is None and "connector" not in names:
            raise OptionError(
                f"CREATE SOURCE {name} names no place", expected="FROM 'path', or WITH (connector = 'kafka', …)"
            )
        return words.end(CreateSource(name, path, options, text))
    if kind == "FUNCTION":
        parameters = words.until("(", ")")
        returns = words.until("RETURNS", "AS")
        return words.end(CreateFunction(name, parameters, returns, words.text(), text))
    if kind == "TABLE":
        words.take("FROM")
        return words.end(CreateTable(name, check_address(words.text()), text))
    options = words.options() if kind != "VIEW" and words.given("WITH") else {}
    lateness = next((options.pop(each) for each in [*options] if each.lower() == "lateness"), "0 seconds")
    queue = {each.lower(): str(options.pop(each)) for each in [*options] if each.lower() in _OF_QUEUE}
    numbers = _numbers(options, "WITH", *_NUMBERS, "lateness", *_OF_QUEUE)
    words.take("AS")
    query = words.rest("a query")
    weight, buckets = numbers.get("weight", 1.0), numbers.get("buckets", 1.0)
    if buckets != int(buckets):
        raise OptionError(f"buckets = {buckets:g}", expected="a whole number")
    late = duration_argument("lateness", lateness)
    return Create(name, query, kind == "VIEW", weight, int(buckets), late, queue, text)


def _numbers(options: Mapping[str, str | Environment], word: str, *names: str) -> dict[str, float]:
    """Return options that are numbers."""
    found: dict[str, float] = {}
    for name, value in options.items():
        if name.lower() not in names:
            hint = _ELSEWHERE.get(name.lower().partition(".")[0], "")
            raise OptionError(f"{word} (… {name} …)", expected=" or ".join(names), hint=hint)
        try:
            found[name.lower()] = float(value)  # pyright: ignore[reportArgumentType]
        except (ValueError, TypeError):
            raise OptionError(f"{name} = {value!r}", expected="a number") from None
    return found


def _names_its_key(path: str | None, options: Mapping[str, str | Environment]) -> bool:
    """Return whether a source reads a latest table, or change events, whose messages have the key."""
    given = {name.replace("_", "").lower(): str(value).lower() for name, value in options.items()}
    if (given | source_address(path)[1]).get("connector") == "latest":
        return True
    return any(given.get(each, "").startswith("debezium") for each in ("format", "fileformat", "valueformat"))


def _alter(words: _Words) -> Alter:
    words.take("MATERIALIZED", "VIEW")
    name = words.name()
    if words.given("AS"):
        return Alter(name, text=words.rest("a query"))
    if words.given("PAUSE"):
        keep = words.given("KEEP")
        if keep:
            words.take("STATE")
        return words.end(Alter(name, active=False, keep_state=keep))
    if words.given("RESUME"):
        return words.end(Alter(name, active=True))
    words.take("SET")
    given = words.options()
    budget = next((str(given.pop(each)) for each in [*given] if each.lower() == "budget"), None)
    return words.end(Alter(name, weight=_numbers(given, "SET", "weight", "budget").get("weight"), budget=budget))


def _semicolon(text: str) -> int | None:
    """Return the position of the first semicolon that ends a statement."""
    try:
        tokens = SparkWords().tokenize(text)
    except TokenError:  # a text or a comment that has no end yet; semicolons before it still count
        tokens = _tokens_before_the_open_end(text)
    return next((each.start for each in tokens if each.token_type is T.SEMICOLON), None)


def _tokens_before_the_open_end(text: str) -> list[Token]:
    for end in (place for place, letter in enumerate(text) if letter == ";"):
        try:
            tokens = SparkWords().tokenize(text[: end + 1])
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
            self._tokens = SparkWords().tokenize(text)
        except TokenError as error:
            raise OptionError(f"a text or a comment has no end: {text}", expected="a closing quote") from error
        self._at = 0

    @property
    def start(self) -> int:
        """The place of the first word, behind comments."""
        return self._tokens[0].start if self._tokens else 0

    def peek(self) -> str | None:
        """Return the next word in capitals, "" for a text in quotes, and None at the end."""
        if self._at >= len(self._tokens):
            return None
        return "" if self._is_text() else self._tokens[self._at].text.upper()

    def _is_text(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].token_type in STRINGS

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
        if self._at >= len(self._tokens) or not self._tokens[self._at].text[:1].isidentifier():
            self._unexpected("a name")
        self._at += 1
        return self._tokens[self._at - 1].text

    def given(self, word: str) -> bool:
        """Take a word if it is the next one; return whether it was."""
        found = self.peek() == word
        self._at += found
        return found

    def kind(self) -> Kind:
        """Take the word or words for a kind of thing."""
        if self.given("MATERIALIZED"):
            self.take("VIEW")
            return "MATERIALIZED VIEW"
        found: Kind | None = next((each for each in _KINDS if self.given(each)), None)
        if found is None:
            self._unexpected(", ".join(_KINDS))
        return found

    def text(self) -> str:
        """Take a text in quotes; adjacent ones are joined."""
        if not self._is_text():
            self._unexpected("a text in single quotes")
        found = ""
        while self._is_text():
            found += self._tokens[self._at].text
            self._at += 1
        return found

    def options(self) -> dict[str, str | Environment]:
        """Take ``(name = value, …)``: names with dots, and texts, numbers, true, false, or ``env('NAME')``."""
        self.take("(")
        found: dict[str, str | Environment] = {}
        while True:
            name = self.name()
            while self.given("."):
                name += "." + self.name()
            if name.lower() in {each.lower() for each in found}:
                raise OptionError(f"{name} is given twice", expected="each option once")
            self.take("=")
            found[name] = self._value()
            if not self.given(","):
                break
        self.take(")")
        return found

    def _value(self) -> str | Environment:
        if self.given("ENV"):
            self.take("(")
            variable = self.text()
            self.take(")")
            return Environment(variable)
        if self._is_text():
            return self.text()
        sign = "-" if self.given("-") else ""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.token_type not in (T.NUMBER, T.TRUE, T.FALSE):
            self._unexpected("a text in single quotes, a number, true, false, or env('NAME')")
        self._at += 1
        return sign + (token.text.lower() if token.token_type in (T.TRUE, T.FALSE) else token.text)

    def until(self, first: str, last: str) -> str:
        """Take what stands between two words, as it is written."""
        self.take(first)
        begun, depth = self._at, 0
        while depth or self.peek() != last:
            word = self.peek()
            depth += {"(": 1, ")": -1}.get(self._unexpected(last) if word is None else word, 0)
            self._at += 1
        self._at += 1
        within = self._tokens[begun : self._at - 1]
        return self._text[within[0].start : within[-1].end + 1] if within else ""

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
