"""Rows of a range of files, read in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from ....conf.errors import FeedChangedError
from ....conf.locations import is_remote
from ..contract import Chunk, MalformedRows, Range
from .content import BLOCK, Footer, compressed_blocks, fingerprint, plain_blocks, read_groups
from .formats.lines import Head, LineFormat, LineParser, parse_lines
from .frontier import RESUME, changed
from .store import FileAccess


class RangeReader:
    """A reader of one range, in bounded memory. `wanted` are the columns to read."""

    def __init__(
        self,
        part: Range,
        schema: pa.Schema,
        wanted: Sequence[str],
        format_of: Callable[[str, bytes], LineFormat | None],
        fits: Callable[[str, Head | Footer], None],
        access: FileAccess,
    ) -> None:
        self._part = part
        self._place = part.place
        self._path: str = part.place["path"]
        self._schema = schema
        self._wanted = list(wanted)
        self._format_of = format_of
        self._fits = fits
        self._access = access

    def chunks(self, malformed: MalformedRows) -> Iterator[Chunk]:
        """Yield the rows; raise FeedChangedError if the file is not what it was when the range was recorded."""
        try:
            with self._access.open(self._path) as file:
                self._verify(file)
                if "groups" in self._place:
                    yield from self._groups(file)
                else:
                    yield from self._lines(file, malformed)
        except FileNotFoundError as error:
            raise changed(self._path, "has disappeared before all of it was consumed") from error
        except OSError as error:
            raise changed(self._path, f"cannot be read: {error}") from error

    def _verify(self, file: BinaryIO) -> None:
        place = self._place
        to = place["to"] if "to" in place else place["size"]
        size = file.seek(0, 2)
        if size < to or ("to" not in place and size != to):
            raise changed(self._path, f"has {size} bytes and had {to} when this part of it was recorded")
        if fingerprint(file, place["head"], to) != place["mark"]:
            raise changed(self._path, "was replaced or rewritten since this part of it was recorded")

    def _groups(self, file: BinaryIO) -> Iterator[Chunk]:
        ordinal = 0
        target = pa.schema([self._schema.field(name) for name in self._wanted])
        low, high = self._place["groups"]
        source = file if is_remote(self._path) else self._path
        for table in read_groups(source, self._path, low, high, self._wanted):
            yield Chunk(_as(table.select(self._wanted), target, self._path), ordinal)
            ordinal += table.num_rows

    def _lines(self, file: BinaryIO, malformed: MalformedRows) -> Iterator[Chunk]:
        codec: str | None = self._place.get("codec")
        form = self._format_of(self._path, b"")
        assert form is not None
        ordinal = 0
        parser: LineParser | None = None
        lines = _LineNumbers(self._path, codec, self._access)
        for begin, whole, arrival in self._blocks(file, form):
            offset, block = begin, whole
            if parser is None:
                head = form.head(whole if codec else self._start(), complete=True)
                if head is None:
                    return
                if codec:
                    self._fits(self._path, head)
                    offset, block = begin + head.start, whole[head.start :]
                parser = form.parser(head, self._schema, self._wanted)
            if not block:
                continue

            def where(byte: int, offset: int = offset, block: bytes = block) -> tuple[str, int]:
                return f"{self._path}, byte {offset + byte}", lines.at(offset, block, byte)

            pieces, taken = parse_lines(parser, block, ordinal, malformed, where)
            for table, first in pieces:
                yield Chunk(table, first, None if arrival is None else np.full(table.num_rows, arrival, np.int64))
            ordinal += taken
            if ordinal > self._part.span:
                raise changed(self._path, f"holds {ordinal} rows where {self._part.span} were recorded")

    def _start(self) -> bytes:
        with self._access.open(self._path) as file:
            return file.read(self._place["head"])

    def _blocks(self, file: BinaryIO, form: LineFormat) -> Iterator[tuple[int, bytes, int | None]]:
        place = self._place
        if "codec" in place:
            for offset, block in compressed_blocks(file, place["codec"], form.last_end):
                yield offset, block, None
            return
        low: int = place["from"]
        # A block's rows have one arrival.
        for end, arrival in place.get("arrivals") or [(place["to"], None)]:
            for offset, block in plain_blocks(file, self._path, low, end, form.last_end):
                yield offset, block, arrival
            low = end


class _LineNumbers:
    """1-based line numbers of a file's bytes, counted on demand in ascending order."""

    def __init__(self, path: str, codec: str | None, access: FileAccess) -> None:
        self._path = path
        self._access = access
        self._codec = codec
        self._offset = 0
        self._lines = 0

    def at(self, offset: int, block: bytes, byte: int) -> int:
        if self._offset < offset:
            self._count_to(offset)
        self._lines += block.count(b"\n", self._offset - offset, byte)
        self._offset = offset + byte
        return 1 + self._lines

    def _count_to(self, offset: int) -> None:
        with self._access.open(self._path) as file:
            if self._codec:
                stream: Any = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), self._codec)
                at, lines = 0, 0
            else:
                stream, at, lines = file, self._offset, self._lines
                file.seek(at)
            while at < offset and (block := stream.read(min(BLOCK, offset - at))):
                at, lines = at + len(block), lines + block.count(b"\n")
        self._offset, self._lines = at, lines


def _as(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Return a Parquet file's rows in the schema's types; times without a zone stay so."""
    columns: list[pa.ChunkedArray] = []
    for field in schema:
        column = table.column(field.name)
        dtype = field.type
        if pa.types.is_timestamp(dtype) and pa.types.is_timestamp(column.type):
            dtype = pa.timestamp(dtype.unit, "UTC" if column.type.tz else None)
            # Spark keeps microseconds.
            columns.append(column.cast(dtype, safe=False))
            continue
        try:
            columns.append(column.cast(dtype))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise FeedChangedError(
                f"column {field.name!r} of file {path} is of type {column.type}, which does not become {dtype}: "
                f"{error}",
                hint=RESUME,
            ) from error
    return pa.table(columns, names=schema.names)
