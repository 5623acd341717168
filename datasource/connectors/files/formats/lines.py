"""Tables from blocks of text lines, with reports of the lines that cannot be read."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from .....core.rows.exact_integers import Int64s
from ...contract import MalformedRows

_LF, _CR = 10, 13
# So many lines are looked at together when they cannot be read together.
_PIECE = 1024
# So few lines are tried one by one.
_FEW = 4
LONGEST_LINE = 1 << 24
"""In bytes. Spark's JVM dies of values that are some times as long."""
# So much of a longer line is in its dead letter, in bytes.
_SHOWN = 1 << 16


class Head:
    """The start of a file: the first byte of data, its columns (None if the rows name them), and a parser's extras."""

    def __init__(self, start: int, columns: Sequence[str] | None = None, **extra: Any) -> None:
        self.start = start
        self.columns = tuple(columns) if columns is not None else None
        self.extra = extra


class LineParser(ABC):
    """A parser of blocks of whole lines of one file."""

    @abstractmethod
    def parse(self, block: bytes) -> pa.Table:
        """Return a row for each line that is not blank; raise ArrowInvalid for an unreadable line."""

    def spans(self, block: bytes) -> tuple[Int64s, Int64s]:
        """Return start and end (line end included) of each line that is a row."""
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LF) + 1
        return rows_between(block, ends)

    def quick_count(self, block: bytes) -> int:
        """Return the number of rows if no line is blank."""
        return block.count(b"\n") + (not block.endswith(b"\n"))

    def doubtful(self, block: bytes) -> bool:
        """Return whether a block with as many rows as lines may still have been misread."""
        del block
        return False

    def sift(self, block: bytes, starts: Int64s, ends: Int64s) -> dict[int, str]:
        """Return lines that :meth:`parse` surely refuses, by index, with the reasons; the method may miss others."""
        del block, starts, ends
        return {}

    @abstractmethod
    def reason(self, error: Exception) -> str:
        """Return an error of :meth:`parse` in plain words."""

    def wrong_count(self, line: bytes, rows: int) -> str:
        """Return why a line that became none or several rows is not a row."""
        del line
        return f"the line holds {rows} rows"


class LineFormat(ABC):
    """A kind of file whose rows are lines."""

    name: ClassVar[str]

    @abstractmethod
    def head(self, start: bytes, *, complete: bool) -> Head | None:
        """Parse a file's first bytes; return ``None`` if more of them are needed (there are none if `complete`)."""

    @abstractmethod
    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        """Return the schema of some whole lines; a column without values has type null."""

    @abstractmethod
    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> LineParser:
        """Return a parser of the file's lines, for all columns or some."""

    def last_end(self, block: bytes) -> int:
        """Return where the last whole row of a block ends; 0 if none does. The block begins with a row."""
        return block.rfind(b"\n") + 1

    def check(self, schema: pa.Schema) -> None:
        """Raise SchemaError for a schema that this format cannot hold."""
        del schema


def rows_between(block: bytes, ends: Int64s, comment: int | None = None) -> tuple[Int64s, Int64s]:
    """Return start and end of each line that is not blank (nor a comment), from where lines end."""
    if not len(ends) or ends[-1] < len(block):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1]))
    data = np.frombuffer(block, np.uint8)
    length = ends - starts
    first = data[starts] if len(data) else data
    second = data[np.minimum(starts + 1, len(data) - 1)]
    blank = (length == 0) | (first == _LF) | ((first == _CR) & ((length == 1) | ((length == 2) & (second == _LF))))
    if comment is not None:
        blank |= first == comment
    return starts[~blank], ends[~blank]


def parse_lines(
    parser: LineParser,
    block: bytes,
    ordinal: int,
    malformed: MalformedRows,
    place: Callable[[int], tuple[str, int | None]],
) -> tuple[list[tuple[pa.Table, Int64s | int]], int]:
    """Return a block's tables with their rows' numbers (the first if consecutive), and how many numbers they take.

    There is one table unless types differ in time zones. A number counts the lines that are not blank, so it depends on
    neither malformed lines nor columns. `malformed` receives unreadable lines in order. `place` maps a byte of the
    block to a place for people and a 1-based line number.
    """
    if len(block) > LONGEST_LINE:
        starts, ends = parser.spans(block)
        long = np.flatnonzero(ends - starts > LONGEST_LINE).tolist()
        if long:
            return _parse_between(parser, block, ordinal, malformed, place, (starts, ends, long)), len(starts)
    table = _attempt(parser, block)
    if table is not None and table.num_rows == parser.quick_count(block) and not parser.doubtful(block):
        return [(table, ordinal)], table.num_rows
    starts, ends = parser.spans(block)
    if table is not None and table.num_rows == len(starts) and not parser.doubtful(block):
        return [(table, ordinal)], table.num_rows
    if not len(starts):
        return [], 0
    lines = _Lines(parser, block, starts, ends)
    return _joined(lines.tables(malformed, place), ordinal), len(starts)


def _parse_between(
    parser: LineParser,
    block: bytes,
    ordinal: int,
    malformed: MalformedRows,
    place: Callable[[int], tuple[str, int | None]],
    spans: tuple[Int64s, Int64s, list[int]],
) -> list[tuple[pa.Table, Int64s | int]]:
    """Return the tables of the lines between too long ones, which are reported with their start alone."""
    starts, ends, long = spans
    tables: list[tuple[pa.Table, Int64s | int]] = []
    first = 0
    for line in (*long, len(starts)):
        if line > first:
            low = int(starts[first])
            part = block[low : int(ends[line - 1])]
            tables += parse_lines(parser, part, ordinal + first, malformed, lambda at, low=low: place(low + at))[0]
        if line < len(starts):
            begin, size = int(starts[line]), int(ends[line] - starts[line])
            where, number = place(begin)
            text = block[begin : begin + _SHOWN].decode("utf-8", "replace") + "…"
            malformed.report(
                text=text, place=where, line=number, reason=f"the line has {size:,} bytes, more than {LONGEST_LINE:,}"
            )
        first = line + 1
    return tables


def _joined(pieces: Iterator[tuple[pa.Table, Int64s]], ordinal: int) -> list[tuple[pa.Table, Int64s | int]]:
    joined: list[tuple[pa.Table, Int64s | int]] = []
    for _, group in itertools.groupby(pieces, key=lambda piece: str(piece[0].schema)):
        together = list(group)
        numbers = ordinal + np.concatenate([lines for _, lines in together])
        joined.append((pa.concat_tables([table for table, _ in together]).combine_chunks(), numbers))
    return joined


def _attempt(parser: LineParser, block: bytes) -> pa.Table | None:
    try:
        return parser.parse(block)
    except pa.ArrowInvalid:
        return None


class _Lines:
    """The lines of a block that cannot be parsed as one.

    Halving finds malformed lines in many attempts, so in a small piece :meth:`LineParser.sift` comes first.
    """

    def __init__(self, parser: LineParser, block: bytes, starts: Int64s, ends: Int64s) -> None:
        self._parser = parser
        self._block = block
        self._starts = starts
        self._ends = ends

    def tables(
        self, malformed: MalformedRows, place: Callable[[int], tuple[str, int | None]]
    ) -> Iterator[tuple[pa.Table, Int64s]]:
        """Yield tables of the readable lines, with their numbers, and report the other lines in order."""
        todo = [np.arange(len(self._starts))]
        while todo:
            lines = todo.pop()
            if len(lines) > _PIECE:
                table, _ = self._read(lines)
                if table is None:
                    todo += _divided(lines)
                elif table.num_rows:
                    yield table, lines
                continue
            bad: dict[int, str] = {}
            yield from self._sifted(lines, bad)
            for line in sorted(bad):
                begin, end = int(self._starts[line]), int(self._ends[line])
                where, number = place(begin)
                text = self._block[begin:end].rstrip(b"\r\n").decode("utf-8", "replace")
                malformed.report(text=text, place=where, line=number, reason=bad[line])

    def _sifted(self, lines: Int64s, bad: dict[int, str]) -> Iterator[tuple[pa.Table, Int64s]]:
        todo = [lines]
        sifted = False
        while todo:
            lines = todo.pop()
            table, why = self._read(lines)
            if table is not None:
                if table.num_rows:
                    yield table, lines
            elif not sifted:
                sifted = True
                low, high = int(lines[0]), int(lines[-1]) + 1
                begin = self._starts[low]
                part = self._block[begin : self._ends[high - 1]]
                found = self._parser.sift(part, self._starts[low:high] - begin, self._ends[low:high] - begin)
                bad.update((low + at, reason) for at, reason in found.items())
                left = np.delete(lines, list(found)) if found else lines
                todo += [left] if found and len(left) else _divided(left)
            elif len(lines) == 1:
                bad[int(lines[0])] = why
            else:
                todo += _divided(lines)

    def _read(self, lines: Int64s) -> tuple[pa.Table | None, str]:
        """Return the table of some lines; or None, and for a single line why it has none."""
        text = self._text(lines)
        why = ""
        try:
            table = self._parser.parse(text)
            if table.num_rows == len(lines) and not self._parser.doubtful(text):
                return table, ""
            if len(lines) == 1:
                if not text.strip():
                    return table.slice(0, 0), ""  # blanks alone are nothing
                why = self._parser.wrong_count(text, table.num_rows)
        except pa.ArrowInvalid as error:
            why = self._parser.reason(error)
        return None, why

    def _text(self, lines: Int64s) -> bytes:
        low, high = int(lines[0]), int(lines[-1])
        if high - low + 1 == len(lines):
            return self._block[self._starts[low] : self._ends[high]]
        return b"".join(self._block[self._starts[line] : self._ends[line]] for line in lines.tolist())


def _divided(lines: Int64s) -> list[Int64s]:
    if len(lines) <= _FEW:
        return [lines[at : at + 1] for at in range(len(lines) - 1, -1, -1)]
    return [lines[len(lines) // 2 :], lines[: len(lines) // 2]]


_STEP = 1 << 20


def row_ends(block: bytes, quote: bytes, most: int, *, final: bool) -> Int64s:
    """Return where rows end in a block that begins with a row.

    A row ends at the first line end with an even number of quotes before it. Without one within `most` bytes, the first
    line alone is an unreadable row. So ends depend only on the bytes from the row's start to the bound: driver and
    tasks find the same rows in different blocks. With `final`, nothing follows, so an open quote is never closed.
    """
    data = np.frombuffer(block, np.uint8)
    lines = np.flatnonzero(data == 10) + 1
    quotes = np.searchsorted(np.flatnonzero(data == quote[0]), lines)
    found: list[Int64s] = []
    start = at = before = 0  # of a row: its byte, its first line, the quotes before it
    while at < len(lines):
        even = at + np.flatnonzero((quotes[at:] - before) % 2 == 0)
        ends = lines[even]
        firsts = np.concatenate(([at], even[:-1] + 1)) if len(even) else even
        long = np.flatnonzero((even > firsts) & (ends - np.concatenate(([start], ends[:-1])) > most))
        good = int(long[0]) if len(long) else len(even)
        found.append(ends[:good])
        if good:
            at, start = int(even[good - 1]) + 1, int(ends[good - 1])
        if at == len(lines) or not (len(long) or final or len(data) - start > most):
            break
        # Nothing closes this line's quote in time.
        found.append(lines[at : at + 1])
        before, start, at = int(quotes[at]), int(lines[at]), at + 1
    return np.concatenate(found) if found else lines[:0]


def last_row_end(file: BinaryIO, low: int, high: int, quote: bytes, most: int) -> int:
    """Return where the last whole row of the bytes [low, high) ends; `low` if none does. A row begins at `low`."""
    file.seek(low)
    at, rest = low, b""
    while at < high and (more := file.read(min(max(_STEP, len(rest)), high - at))):
        at += len(more)
        rest += more
        ends = row_ends(rest, quote, most, final=False)
        if len(ends):
            low += int(ends[-1])
            rest = rest[int(ends[-1]) :]
    return low
