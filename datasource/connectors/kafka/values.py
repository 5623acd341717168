"""Columns from messages' values: parsed together by one call, with each unreadable value reported by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ....conf.errors import SchemaError
from ....core.rows.exact_integers import Int64s
from ..contract import MalformedRows
from ..files.formats.jsonlines import JsonFormat
from ..files.formats.lines import Head, LineFormat, LineParser, parse_lines
from ..files.formats.separated_values import DelimitedFormat

RowsAtOffsets = tuple[pa.Table, Int64s]
"""Rows, and the position of each among the values."""
Where = Callable[[int], str]
"""The readable place of the value at a position."""


class ValueFormat(ABC):
    """A format of message values."""

    @abstractmethod
    def infer(self, sample: Sequence[bytes]) -> pa.Schema:
        """Return the columns, inferred from some values if nothing else defines them."""

    def check(self, schema: pa.Schema) -> None:
        """Raise SchemaError for columns that values cannot hold."""
        del schema

    @abstractmethod
    def read(
        self, values: Sequence[bytes], schema: pa.Schema, columns: Sequence[str], malformed: MalformedRows, where: Where
    ) -> list[RowsAtOffsets]:
        """Return the readable values' rows in order, in several tables if types differ in time zones."""


class LineValues(ValueFormat):
    """A format of values that each are a line of some file format."""

    def __init__(self, form: LineFormat, *, bracketed: bool) -> None:
        self._form = form
        self._bracketed = bracketed

    def infer(self, sample: Sequence[bytes]) -> pa.Schema:
        if not self._bracketed:
            raise SchemaError(
                "values in CSV do not name their columns",
                hint='give the option `schema`, such as "plate STRING, speed DOUBLE, at TIMESTAMP"',
            )
        lines = [line for line in map(_one_line, sample) if line]
        return self._form.infer(b"\n".join(lines) + b"\n", Head(0))

    def check(self, schema: pa.Schema) -> None:
        self._form.check(schema)

    def read(
        self, values: Sequence[bytes], schema: pa.Schema, columns: Sequence[str], malformed: MalformedRows, where: Where
    ) -> list[RowsAtOffsets]:
        parser = self._form.parser(Head(0), schema, columns)
        block = b"\n".join(values)
        positions: Int64s | None = None
        if not self._one_each(block, values):
            values, positions = self._cleaned(values, malformed, where)
            block = b"\n".join(values)
        return _parsed(parser, values, block, positions, malformed, where)

    def _one_each(self, block: bytes, values: Sequence[bytes]) -> bool:
        """Return whether each line of the block is surely one value, and none is blank."""
        ends = len(values) - 1
        if not self._bracketed:
            return block.count(b"\n") == ends and b"\r" not in block and all(values)
        # Between two objects there is no other place for these three bytes: so none goes over a line's end, and no two
        # values are one.
        return block[:1] == b"{" and block[-1:] == b"}" and block.count(b"}\n{") == ends and block.count(b"\n") == ends

    def _cleaned(self, values: Sequence[bytes], malformed: MalformedRows, where: Where) -> tuple[list[bytes], Int64s]:
        """Return each value as one line, and its position; report and leave out values that are surely no row."""
        kept: list[bytes] = []
        positions: list[int] = []
        for position, value in enumerate(values):
            line = _one_line(value) if self._bracketed else value.rstrip(b"\r\n")
            why = ""
            if not line.strip():
                why = "the value is empty"
            elif self._bracketed and not (line.startswith(b"{") and line.endswith(b"}")):
                why = "the value is no object"
            elif b"\n" in line or b"\r" in line:
                why = "the value holds several lines"
            if why:
                _report(malformed, value, where(position), why)
            else:
                kept.append(line)
                positions.append(position)
        return kept, np.array(positions, dtype=np.int64)


def json_values() -> ValueFormat:
    """Return the format of values that are JSON objects, however they are laid out."""
    return LineValues(JsonFormat(), bracketed=True)


def csv_values(sep: str) -> ValueFormat:
    """Return the format of values that are fields between separators, in the order of the schema."""
    return LineValues(
        DelimitedFormat(header=False, sep=sep, quote='"', multi_line=False, null_value=""), bracketed=False
    )


def _one_line(value: bytes) -> bytes:
    # A line's end within a string of JSON is written otherwise; between its members it is a blank.
    return value.strip().replace(b"\n", b" ").replace(b"\r", b" ")


def _parsed(
    parser: LineParser,
    values: Sequence[bytes],
    block: bytes,
    positions: Int64s | None,
    malformed: MalformedRows,
    where: Where,
) -> list[RowsAtOffsets]:
    if not values:
        return []
    starts: Int64s | None = None

    def place(byte: int) -> tuple[str, int | None]:
        nonlocal starts
        if starts is None:
            starts = np.concatenate(([0], np.cumsum([len(value) + 1 for value in values[:-1]]))).astype(np.int64)
        number = int(np.searchsorted(starts, byte, side="right")) - 1
        return where(number if positions is None else int(positions[number])), None

    pieces, _ = parse_lines(parser, block, 0, malformed, place)
    found: list[RowsAtOffsets] = []
    for table, first in pieces:
        numbers = np.arange(first, first + table.num_rows) if isinstance(first, int) else first
        found.append((table, numbers if positions is None else positions[numbers]))
    return found


def _report(malformed: MalformedRows, value: bytes, place: str, why: str) -> None:
    malformed.report(text=value.decode("utf-8", "replace"), place=place, line=None, reason=why)
