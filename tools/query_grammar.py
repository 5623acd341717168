"""What the language of continuous queries has beyond Spark SQL, described once.

``tools/draw_grammar.py`` draws it, and tests/docs/test_query_grammar.py spells every path of it and reads what comes
out with the real parser. So the drawings cannot show what is not there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "GRAMMAR",
    "Choice",
    "Leaf",
    "Lines",
    "Many",
    "Maybe",
    "Node",
    "Ref",
    "Seq",
    "Word",
    "every",
    "some",
]


@dataclass(frozen=True)
class Word:
    """A word or a sign, as it is typed."""

    text: str


@dataclass(frozen=True)
class Leaf:
    """What is not described further; ``texts`` are examples of it."""

    label: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Ref:
    """Another rule of the grammar."""

    rule: str


@dataclass(frozen=True)
class Seq:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Lines:
    """One part after the other, each drawn on a line of its own."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Maybe:
    """A part that may be left out."""

    part: Node


@dataclass(frozen=True)
class Many:
    """A part, and as many more as one likes with a comma between them."""

    part: Node


Node: TypeAlias = "Word | Leaf | Ref | Seq | Lines | Choice | Maybe | Many"


def _node(part: Node | str) -> Node:
    return _words(part) if isinstance(part, str) else part


def _words(text: str) -> Node:
    words = tuple(Word(each) for each in text.split())
    return words[0] if len(words) == 1 else Seq(words)


def _seq(*parts: Node | str) -> Seq:
    flat: list[Node] = []
    for each in map(_node, parts):
        flat += each.parts if isinstance(each, Seq) else [each]
    return Seq(tuple(flat))


def _lines(*parts: Node | str) -> Lines:
    return Lines(tuple(map(_node, parts)))


def _choice(*parts: Node | str) -> Choice:
    return Choice(tuple(map(_node, parts)))


def _maybe(*parts: Node | str) -> Maybe:
    made = _seq(*parts)
    return Maybe(made.parts[0] if len(made.parts) == 1 else made)


_STREAM = Leaf("stream", ("buses",))
_NAME = Leaf("name", ("routes", "b"))
_NUMBER = Leaf("number", ("5", "1", "40"))
_INTERVAL = Leaf("interval", ("INTERVAL '1' MINUTE", "INTERVAL '30' SECONDS", "INTERVAL 1 DAY"))
_SIZE = Leaf("interval", ("INTERVAL '1' DAY", "INTERVAL 48 HOURS"))
_CONDITION = Leaf("condition", ("speed > 10", "speed > 10 AND NOT vehicle_id LIKE 'x%'"))
_COLUMN = Leaf("column", ("vehicle_id", "speed"))
_TIME = _choice(Leaf("event time", ("timestamp",)), _seq("DESCRIPTOR (", Leaf("event time", ("timestamp",)), ")"))
_TEXT = Leaf("text", ("'feed/'", "'it'"))
_OPTION = Leaf("option", ("event_time = 'timestamp'", "connector = 'kafka'", "sep = env ( 'SEP' )"))
_PARAMETER = Leaf("column type", ("x DOUBLE", "n BIGINT"))
_TYPE = Leaf("type", ("DOUBLE", "STRING"))
_TABLE_OF = _seq(_maybe("TABLE"), _STREAM, _maybe(Ref("sample")), ",", _TIME)

GRAMMAR: dict[str, Node] = {
    "query": _choice(
        _seq(
            Ref("select"),
            _maybe("EMIT", _choice("CHANGES", "EARLY", "ON WINDOW CLOSE", _seq("PERIODIC", _INTERVAL))),
        ),
        _seq(_choice("ISTREAM", "DSTREAM", "RSTREAM"), "(", Ref("select"), ")"),
    ),
    "select": _lines(
        _seq(
            "SELECT",
            Leaf("columns", ("vehicle_id , speed",)),
            "FROM",
            Ref("source"),
            _maybe(Leaf("joins and clauses of Spark SQL", ("WHERE speed < 90", "JOIN Domains ON vehicle_id = domain"))),
        ),
        _seq(
            _maybe(
                "QUALIFY ROW_NUMBER ( ) OVER (",
                _maybe("PARTITION BY", Many(Leaf("column", ("vehicle_id",)))),
                "ORDER BY",
                Many(Leaf("column", ("speed", "speed DESC"))),
                ") <=",
                _NUMBER,
            )
        ),
        _seq(_maybe("ORDER BY", Many(Leaf("column", ("speed", "vehicle_id DESC"))), "LIMIT", _NUMBER)),
    ),
    "source": _seq(
        _choice(
            _seq(
                _choice(
                    _STREAM,
                    _seq(_maybe(_choice("ISTREAM", "DSTREAM", "RSTREAM")), "(", Ref("select"), ")"),
                ),
                _maybe(Ref("window")),
                _maybe(Ref("sample")),
            ),
            Ref("function"),
        ),
        _maybe(_maybe("AS"), Leaf("name", ("b", "c"))),
    ),
    "function": _choice(
        _seq("LATEST (", _STREAM, _maybe(Ref("sample")), ")"),
        _seq("TUMBLE (", _TABLE_OF, ",", _SIZE, ")"),
        _seq("HOP (", _TABLE_OF, ",", _INTERVAL, ",", _SIZE, ")"),
        _seq(
            "SESSION (",
            _maybe("TABLE"),
            _STREAM,
            _maybe(Ref("sample")),
            _maybe("PARTITION BY", Many(Leaf("column", ("vehicle_id",)))),
            ",",
            _TIME,
            ",",
            _SIZE,
            ")",
        ),
    ),
    "window": _seq(
        "[",
        _maybe("PARTITION BY", Many(_COLUMN)),
        _choice(
            _seq("RANGE", Ref("length"), _maybe("PRECEDING"), _maybe("SLIDE", Ref("length"))),
            _seq("RANGE UNBOUNDED", _maybe("PRECEDING"), _maybe("SLIDE", Ref("length"))),
            _seq("ROWS", _NUMBER, _maybe("PRECEDING"), _maybe("SLIDE", _NUMBER)),
            "NOW",
        ),
        _maybe("WHERE", _CONDITION),
        "]",
    ),
    "length": _choice(
        _seq(_NUMBER, _choice("SECONDS", "MINUTES", "HOURS", "DAYS")),
        _INTERVAL,
    ),
    "sample": _choice(
        _seq("SAMPLE (", Leaf("percent", ("10", "0.5")), ")"),
        _seq("TABLESAMPLE (", Leaf("percent", ("10", "0.5")), "PERCENT )", _maybe("REPEATABLE (", _NUMBER, ")")),
    ),
    "statement": _choice(
        _seq(
            "CREATE MATERIALIZED VIEW",
            _NAME,
            _maybe(
                "WITH (",
                _choice(
                    _seq("weight =", _NUMBER),
                    _seq("buckets =", _NUMBER),
                    _seq("weight =", _NUMBER, ", buckets =", _NUMBER),
                ),
                ")",
            ),
            "AS",
            Ref("query"),
        ),
        _seq("CREATE VIEW", _NAME, "AS", Ref("query")),
        _seq("CREATE SOURCE", _NAME, "FROM", _TEXT, "WITH ( key =", _TEXT, _maybe(",", Many(_OPTION)), ")"),
        _seq("CREATE TABLE", _NAME, "FROM", _TEXT),
        _seq("CREATE FUNCTION", _NAME, "(", Many(_PARAMETER), ") RETURNS", _TYPE, "AS", _TEXT),
        _seq(
            "ALTER MATERIALIZED VIEW",
            _NAME,
            _choice(
                _seq("AS", Ref("query")),
                _seq("SET ( weight =", _NUMBER, ")"),
                _seq("PAUSE", _maybe("KEEP STATE")),
                "RESUME",
            ),
        ),
        _seq("REFRESH TABLE", _NAME),
        _seq("DROP", _choice("VIEW", "TABLE", "FUNCTION"), _NAME, _maybe("CASCADE")),
        _seq("DROP MATERIALIZED VIEW", _NAME, _maybe("PURGE")),
        _seq("SHOW", _choice("SOURCES", "TABLES", "VIEWS", "MATERIALIZED VIEWS", "FUNCTIONS", _seq("CREATE", _NAME))),
        _seq("DESCRIBE", _NAME),
        _seq("EXPLAIN", _choice(Ref("query"), _NAME)),
        Ref("query"),
    ),
}
"""The rules by name, in the order of the page."""


def every(node: Node) -> Iterator[tuple[str, ...]]:
    """Spell every path through a node, as words.

    What it refers to is spelled in one way, with all that may be left out. A repeated part comes once, and twice.
    """
    if isinstance(node, Word):
        yield (node.text,)
    elif isinstance(node, Leaf):
        yield (node.texts[0],)
    elif isinstance(node, Ref):
        yield some(node, lambda _: 0)
    elif isinstance(node, Seq | Lines):
        for found in itertools.product(*(tuple(every(each)) for each in node.parts)):
            yield tuple(itertools.chain(*found))
    elif isinstance(node, Choice):
        for each in node.parts:
            yield from every(each)
    elif isinstance(node, Maybe):
        yield ()
        yield from every(node.part)
    else:
        yield from every(node.part)
        yield (*some(node.part, lambda _: 0), ",", *some(node.part, lambda n: n - 1))


def some(node: Node, choose: Callable[[int], int], depth: int = 0) -> tuple[str, ...]:
    """Spell one path through a node, as words.

    Parameters
    ----------
    node
        Where to begin.
    choose
        Called with a number of ways, returns which one to go: 0 is the first one, and to leave nothing out.
    depth
        How many rules are around it: rules inside of many others are spelled by their first ways.
    """
    if depth > 6:
        return some(node, lambda _: 0, 0)
    if isinstance(node, Word):
        return (node.text,)
    if isinstance(node, Leaf):
        return (node.texts[choose(len(node.texts))],)
    if isinstance(node, Ref):
        return some(GRAMMAR[node.rule], choose, depth + 1)
    if isinstance(node, Seq | Lines):
        return tuple(itertools.chain(*(some(each, choose, depth) for each in node.parts)))
    if isinstance(node, Choice):
        return some(node.parts[choose(len(node.parts))], choose, depth)
    if isinstance(node, Maybe):
        return some(node.part, choose, depth) if choose(2) == 0 else ()
    first = some(node.part, choose, depth)
    return first if choose(2) == 0 else (*first, ",", *some(node.part, choose, depth))
