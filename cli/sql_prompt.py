"""The prompt of ``upstream sql``, with completion by Tab."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from ..conf.errors import UpstreamError
from .sql_shell import Shell
from .sql_statements import parse, split

__all__ = ["Lines", "completions", "converse", "statements_of", "terminal"]

Lines = Callable[[str], str]
"""Reads a line after a prompt; raises EOFError at the end, and KeyboardInterrupt on Ctrl-C."""

_FIRST, _NEXT = "upstream=> ", "upstream-> "
_WORDS = re.findall(
    r"\w+",
    "SELECT FROM WHERE GROUP BY HAVING QUALIFY ORDER LIMIT JOIN LEFT RIGHT FULL ON AS AND OR NOT IN EXISTS BETWEEN "
    "CASE  WHEN THEN ELSE END DISTINCT UNION EXCEPT INTERSECT ALL WITH RANGE ROWS SLIDE PARTITION NOW UNBOUNDED "
    "LATEST HOP  TUMBLE ISTREAM DSTREAM RSTREAM EMIT CHANGES WINDOW CLOSE PERIODIC INTERVAL SECONDS MINUTES HOURS "
    "DAYS SAMPLE  COUNT SUM AVG MIN MAX CREATE MATERIALIZED VIEW ALTER SET DROP ACTIVATE DEACTIVATE EXPLAIN",
)


def completions(begun: str, names: Iterable[str]) -> list[str]:
    """Return the words of the language (in the case begun) and the names that complete the beginning of a word."""
    words = _WORDS if begun[:1].isupper() else [each.lower() for each in _WORDS]
    every = [*names, *words]
    return sorted({each for each in every if begun and each.lower().startswith(begun.lower())})


def converse(shell: Shell, lines: Lines, complain: Callable[[UpstreamError], object]) -> None:
    """Run typed statements until the end or ``quit``, reporting errors. Ctrl-C discards an unfinished statement."""
    buffer = ""
    while True:
        try:
            buffer += lines(_NEXT if buffer else _FIRST) + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            buffer = ""
            continue
        found, buffer = split(buffer)
        for text in found:
            try:
                if not shell.run(parse(text)):
                    return
            except UpstreamError as error:
                complain(error)
                buffer = ""
                break


def statements_of(text: str) -> Iterator[str]:
    """Yield the statements of a script. The last one needs no semicolon."""
    found, rest = split(text)
    yield from found
    if rest.strip():
        yield rest.strip()


def terminal(names: Callable[[], Iterable[str]]) -> Lines:
    """Return a prompt for a terminal, with history and completion of `names` if this Python has readline."""
    try:
        import readline
    except ImportError:  # not on every platform
        return input

    def complete(begun: str, state: int) -> str | None:
        found = completions(begun, names())
        return found[state] + " " if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(re.sub(r"[\w-]", "", readline.get_completer_delims()))
    readline.parse_and_bind("tab: complete")
    return input
