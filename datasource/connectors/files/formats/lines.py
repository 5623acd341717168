"""Blocks of text lines become tables; a line that cannot be read is found by halving, and reported as it is.

Rows are numbered by their line among the lines that are not blank, so a row's number does not depend on whether an
earlier line could be read, nor on which columns were asked for.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...contract import MalformedRows

__all__ = ["Head", "LineFormat", "LineParser", "parse_lines"]

Int64s = npt.NDArray[np.int64]
_LF, _CR = 10, 13
# So few lines are tried one by one.
_FEW = 4


class Head:
    """What the start of a file says of the rest.

    Parameters
    ----------
    start : int
        The first byte of data.
    columns : sequence of str, or None
        The file's columns in order; ``None`` if its rows name them.
    extra : mapping
        What else the format's parser needs.
    """

    def __init__(self, start: int, columns: Sequence[str] | None = None, **extra: Any) -> None:
        self.start = start
        self.columns = tuple(columns) if columns is not None else None
        self.extra = extra


class LineParser(ABC):
    """Parses blocks of whole lines of one file."""

    @abstractmethod
    def parse(self, block: bytes) -> pa.Table:
        """The rows of a block, one for each line that is not blank.

        Raises
        ------
        pyarrow.ArrowInvalid
            A line cannot be read.
        """

    def spans(self, block: bytes) -> tuple[Int64s, Int64s]:
        """Start and end (line end included) of each line that is a row."""
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LF) + 1
        return rows_between(block, ends)

    def quick_count(self, block: bytes) -> int:
        """How many rows there are if no line is blank."""
        return block.count(b"\n") + (not block.endswith(b"\n"))

    def doubtful(self, block: bytes) -> bool:
        """Whether a block that was parsed into as many rows as lines may still have been misread."""
        del block
        return False

    @abstractmethod
    def reason(self, error: Exception) -> str:
        """An error of :meth:`parse` in plain words."""

    def wrong_count(self, line: bytes, rows: int) -> str:
        """Why a line that became none or several rows is no row."""
        del line
        return f"the line holds {rows} rows"


class LineFormat(ABC):
    """A kind of file whose rows are lines."""

    name: ClassVar[str]

    @abstractmethod
    def head(self, start: bytes, *, complete: bool) -> Head | None:
        """What a file's first bytes say; ``None`` if more of them are needed (there are none if `complete`)."""

    @abstractmethod
    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        """The schema of some whole lines; a column of nothing but nulls has type null."""

    @abstractmethod
    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> LineParser:
        """A parser of the file's lines, for all columns or some."""

    def last_end(self, block: bytes) -> int:
        """Where the last whole row of a block ends; 0 if none does. The block begins with a row."""
        return block.rfind(b"\n") + 1

    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema that this format cannot hold, with SchemaError."""
        del schema


def rows_between(block: bytes, ends: Int64s, comment: int | None = None) -> tuple[Int64s, Int64s]:
    """Start and end of each line that is not blank (nor a comment), from where lines end."""
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
    """The rows of a block, and how many numbers they take.

    Parameters
    ----------
    parser, block
        What is parsed.
    ordinal : int
        The first row's number.
    malformed
        Told of each line that cannot be read, in order.
    place : callable
        The readable place of a byte of the block, and its 1-based line number if it has one.

    Returns
    -------
    pieces : list of (table, numbers of its rows, or the first if they are consecutive)
        In order; one, unless their types differ in zones of time.
    taken : int
        Rows and malformed lines together.
    """
    table = _attempt(parser, block)
    if table is not None and table.num_rows == parser.quick_count(block) and not parser.doubtful(block):
        return [(table, ordinal)], table.num_rows
    starts, ends = parser.spans(block)
    if table is not None and table.num_rows == len(starts) and not parser.doubtful(block):
        return [(table, ordinal)], table.num_rows
    pieces = _halves(parser, block, starts, ends, ordinal, malformed, place) if len(starts) else iter(())
    return _joined(pieces), len(starts)


def _joined(pieces: Iterator[tuple[pa.Table, int]]) -> list[tuple[pa.Table, Int64s | int]]:
    joined: list[tuple[pa.Table, Int64s | int]] = []
    for _, group in itertools.groupby(pieces, key=lambda piece: str(piece[0].schema)):
        together = list(group)
        numbers = [np.arange(first, first + table.num_rows) for table, first in together]
        joined.append((pa.concat_tables([table for table, _ in together]).combine_chunks(), np.concatenate(numbers)))
    return joined


def _attempt(parser: LineParser, block: bytes) -> pa.Table | None:
    try:
        return parser.parse(block)
    except pa.ArrowInvalid:
        return None


def _halves(
    parser: LineParser,
    block: bytes,
    starts: Int64s,
    ends: Int64s,
    ordinal: int,
    malformed: MalformedRows,
    place: Callable[[int], tuple[str, int | None]],
) -> Iterator[tuple[pa.Table, int]]:
    todo = [(0, len(starts))]
    while todo:
        low, high = todo.pop()
        part = block[starts[low] : ends[high - 1]]
        why = ""
        try:
            table = parser.parse(part)
            if table.num_rows == high - low and not parser.doubtful(part):
                yield table, ordinal + low
                continue
            if high - low == 1:
                if not part.strip():
                    continue  # blanks alone are nothing
                why = parser.wrong_count(part, table.num_rows)
        except pa.ArrowInvalid as error:
            why = parser.reason(error)
        if high - low == 1:
            where, line = place(int(starts[low]))
            malformed.report(text=part.rstrip(b"\r\n").decode("utf-8", "replace"), place=where, line=line, reason=why)
            continue
        if high - low <= _FEW:
            todo += [(at, at + 1) for at in range(high - 1, low - 1, -1)]
        else:
            middle = (low + high) // 2
            todo += [(middle, high), (low, middle)]
