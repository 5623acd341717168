"""Rows from messages: values parsed together, metadata beside them, tombstones in their places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.errors import SchemaError
from ....core.rows.event_times import NO_TIME
from ....core.rows.exact_integers import Int64s
from ....core.rows.system_column import TIMESTAMP
from ...options import SourceOptions
from ..contract import Chunk, MalformedRows, Range
from ..files.formats.jsonlines import JsonFormat
from ..files.formats.lines import Head, LineFormat, LineParser, parse_lines
from ..files.formats.separated_values import DelimitedFormat, texts_as
from .options import KafkaOptions

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
                why = "the value is not an object"
            elif b"\n" in line or b"\r" in line:
                why = "the value holds several lines"
            if why:
                malformed.report(text=value.decode("utf-8", "replace"), place=where(position), line=None, reason=why)
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


Bools = npt.NDArray[np.bool_]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
METADATA = {
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""Columns of every message: `raw` has them under these names, other formats with an underscore before."""


def timestamps_us(messages: Sequence[Any]) -> Int64s:
    """Return the messages' timestamps in microseconds; :data:`~upstream.core.rows.event_times.NO_TIME` for none."""
    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
    return np.where(stamps < 0, NO_TIME, stamps * 1000)


def column_of(name: str, messages: Sequence[Any], dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    """Return one column of the messages, and which messages have no value of this type."""
    none = np.zeros(len(messages), dtype=np.bool_)
    if name == "key":
        return keys_as([message.key() for message in messages], dtype)
    if name == "timestamp":
        stamps = timestamps_us(messages)
        return pa.array(stamps, mask=stamps == NO_TIME).cast(TIMESTAMP).cast(dtype), none
    if name == "timestampType":
        # Spark's numbers: -1 none, 0 the producer's, 1 the broker's; the client's are one more.
        kinds = np.fromiter((message.timestamp()[0] - 1 for message in messages), np.int32, len(messages))
        return pa.array(kinds).cast(dtype), none
    if name == "headers":
        found = [
            None if (headers := message.headers()) is None else [{"key": key, "value": value} for key, value in headers]
            for message in messages
        ]
        return pa.array(found, HEADERS), none
    if name in ("topic", "partition"):
        first = getattr(messages[0], name)() if messages else None
        return pa.repeat(pa.scalar(first, METADATA[name]), len(messages)).cast(dtype), none
    return pa.array([message.offset() for message in messages], pa.int64()).cast(dtype), none


def keys_as(keys: Sequence[bytes | None], dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    """Return messages' keys in a column's type, read as text unless it is binary; and which keys do not fit."""
    raw = pa.array(keys, pa.binary())
    try:
        return _cast(raw, dtype), np.zeros(len(keys), dtype=np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _singly(raw, dtype)


def check_key_type(name: str, dtype: pa.DataType) -> None:
    """Raise SchemaError for a type that text cannot be converted to."""
    try:
        _cast(pa.array([None], pa.binary()), dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {name!r} is of type {dtype}, which a message's key does not become",
            expected="STRING, BINARY, a number, a date or a timestamp",
        ) from error


def _cast(raw: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pa.types.is_binary(dtype):
        return raw
    return pa.concat_arrays(texts_as(pa.chunked_array([raw.cast(pa.string())]), dtype).chunks)


def _singly(raw: pa.Array, dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    bad = np.zeros(len(raw), dtype=np.bool_)
    parts: list[pa.Array] = []
    for position in range(len(raw)):
        try:
            parts.append(_cast(raw.slice(position, 1), dtype))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bad[position] = True
            parts.append(pa.nulls(1, dtype))
    return pa.concat_arrays(parts) if parts else pa.nulls(0, dtype), bad


_VALUE, _OFFSET = methodcaller("value"), methodcaller("offset")


class MessageRows:
    """A converter of one range's messages to rows. `values` is None for raw values."""

    def __init__(
        self,
        options: KafkaOptions,
        common: SourceOptions,
        values: ValueFormat | None,
        schema: pa.Schema,
        wanted: Sequence[str],
    ) -> None:
        self._options = options
        self._common = common
        self._values = values
        self._schema = pa.schema([schema.field(name) for name in wanted])
        self._metadata = {name: own for name in schema.names if (own := metadata_name(name, options)) is not None}
        self._value_schema = pa.schema([field for field in schema if field.name not in self._metadata])
        self._value_columns = [name for name in wanted if name in self._value_schema.names]
        self._keys = json_values()

    def chunks(self, messages: list[Any], part: Range, malformed: MalformedRows) -> Iterator[Chunk]:
        values = list(map(_VALUE, messages))
        if self._values is None:
            deleted = np.fromiter((value is None for value in values), np.bool_, len(values))
            everything = np.arange(len(messages))
            table = pa.table([pa.array(values, pa.binary())], names=["value"])
            yield from self._chunk(table, everything, deleted, messages, part, malformed)
            return
        full, gone = np.arange(len(values)), np.array([], dtype=np.int64)
        if None in values:
            empty = np.fromiter((value is None for value in values), np.bool_, len(values))
            full, gone = np.flatnonzero(~empty), np.flatnonzero(empty)
            values = [values[number] for number in full]

        def where(position: int) -> str:
            return _place(part, messages[int(full[position])])

        columns = self._value_columns
        if columns and values:
            read = self._values.read(values, self._value_schema, columns, malformed, where)
            pieces = [(table, full[positions]) for table, positions in read]
        else:
            pieces = [(_rows_without_columns(len(full)), full)] if len(full) else []
        tombstones = self._tombstones(gone, messages, part, malformed) if len(gone) else None
        for number, piece in enumerate(pieces):
            # Each piece takes the tombstones before the next one's rows.
            end = pieces[number + 1][1][0] if number + 1 < len(pieces) else len(messages)
            mixed, tombstones = _split(tombstones, int(end))
            table, positions, deleted = _mixed(*piece, mixed)
            yield from self._chunk(table, positions, deleted, messages, part, malformed)
        if tombstones is not None and not pieces:
            table, positions = tombstones
            yield from self._chunk(table, positions, np.ones(len(positions), np.bool_), messages, part, malformed)

    def _chunk(
        self,
        table: pa.Table,
        positions: Int64s,
        deleted: npt.NDArray[np.bool_],
        messages: list[Any],
        part: Range,
        malformed: MalformedRows,
    ) -> Iterator[Chunk]:
        chosen = messages if len(positions) == len(messages) else [messages[position] for position in positions]
        bad = np.zeros(len(chosen), dtype=np.bool_)
        columns: list[Any] = []
        for field in self._schema:
            own = self._metadata.get(field.name)
            if own is not None:
                column, unfit = column_of(own, chosen, field.type)
                for at in np.flatnonzero(unfit & ~bad):
                    _report_key(malformed, chosen[at], part, field.type)
                bad |= unfit
            elif field.name in table.column_names:
                column = table.column(field.name)
            else:
                column = pa.nulls(len(chosen), field.type)
            columns.append(column)
        names = [field.name for field in self._schema]
        rows = pa.table(columns, names=names) if columns else _rows_without_columns(len(chosen))
        if bad.any():
            kept = np.flatnonzero(~bad)
            rows, deleted = rows.take(pa.array(kept)), deleted[kept]
            chosen = [chosen[at] for at in kept]
        if not chosen:
            return
        offsets = _offsets(chosen)
        stones = deleted.any()
        yield Chunk(
            rows,
            offsets - int(part.place["from"]),
            _arrivals(part, offsets),
            deleted if stones else None,
            timestamps_us(chosen) if stones else None,
        )

    def _tombstones(self, gone: Int64s, messages: list[Any], part: Range, malformed: MalformedRows) -> RowsAtOffsets:
        """Return the keys of tombstones in the key's columns; tombstones whose message has no such key are reported."""
        names = [name for name in self._common.key if name in self._value_columns]
        if not names:
            return _rows_without_columns(len(gone)), gone
        keys = [messages[number].key() for number in gone]
        if self._options.key_format == "json":
            known = np.array([at for at, key in enumerate(keys) if key is not None], dtype=np.int64)
            for at in np.setdiff1d(np.arange(len(keys)), known):
                _report(malformed, messages[gone[at]], part, "the tombstone has no key")
            found = self._keys.read(
                [keys[at] for at in known],
                pa.schema([self._value_schema.field(name) for name in names]),
                names,
                malformed,
                lambda at: _place(part, messages[gone[known[at]]]),
            )
            if not found:
                return _rows_without_columns(0), gone[:0]
            tables = [table.cast(pa.schema([self._value_schema.field(name) for name in names])) for table, _ in found]
            return pa.concat_tables(tables), np.concatenate([gone[known[positions]] for _, positions in found])
        if len(names) > 1:
            for number in gone:
                _report(
                    malformed,
                    messages[number],
                    part,
                    "a tombstone's key is text; set keyFormat=json for several columns",
                )
            return _rows_without_columns(0), gone[:0]
        dtype = self._value_schema.field(names[0]).type
        column, unfit = keys_as(keys, dtype)
        for at in np.flatnonzero(unfit):
            _report_key(malformed, messages[gone[at]], part, dtype)
        fit = np.flatnonzero(~unfit)
        return pa.table([column.take(pa.array(fit))], names=names), gone[fit]


def metadata_name(name: str, options: KafkaOptions) -> str | None:
    """Return the part of the message that a column holds besides the value; None for a column of the value."""
    if options.value_format == "raw":
        return name if name in METADATA else None
    return name[1:] if name.startswith("_") and name[1:] in METADATA else None


def _rows_without_columns(count: int) -> pa.Table:
    """Return a table that counts rows in a nameless column: Arrow keeps no count of rows without a column."""
    return pa.table([pa.nulls(count)], names=[""])


def _split(tombstones: RowsAtOffsets | None, end: int) -> tuple[RowsAtOffsets | None, RowsAtOffsets | None]:
    if tombstones is None:
        return None, None
    table, positions = tombstones
    cut = int(np.searchsorted(positions, end))
    return (table.slice(0, cut), positions[:cut]), (table.slice(cut), positions[cut:])


def _mixed(table: pa.Table, positions: Int64s, tombstones: RowsAtOffsets | None) -> tuple[pa.Table, Int64s, Any]:
    if tombstones is None or not len(tombstones[1]):
        return table, positions, np.zeros(len(positions), dtype=np.bool_)
    stones, places = tombstones
    # In the types of the rows: times of one piece may lack their zone.
    fields = [field for field in table.schema if field.name in stones.column_names]
    stones = pa.table([stones.column(field.name).cast(field.type) for field in fields], names=[f.name for f in fields])
    if not fields:
        stones = _rows_without_columns(len(places))
    together = pa.concat_tables([table, stones], promote_options="default")
    where = np.concatenate([positions, places])
    deleted = np.concatenate([np.zeros(len(positions), np.bool_), np.ones(len(places), np.bool_)])
    order = np.argsort(where, kind="stable")
    return together.take(pa.array(order)), where[order], deleted[order]


def _arrivals(part: Range, offsets: Int64s) -> Int64s | None:
    looks = part.place.get("arrivals")
    if looks is None:
        return None
    ends, arrivals = np.array(looks, dtype=np.int64).T
    return arrivals[np.searchsorted(ends, offsets, side="right")]


def _offsets(messages: list[Any]) -> Int64s:
    """Return the messages' offsets, which increase: without gaps if first and last are as far apart as the count."""
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first + 1 == len(messages):
        return np.arange(first, last + 1)
    return np.fromiter(map(_OFFSET, messages), np.int64, len(messages))


def _place(part: Range, message: Any) -> str:
    return f"{part.feed}, offset {message.offset()}"


def _report(malformed: MalformedRows, message: Any, part: Range, why: str) -> None:
    key = message.key()
    text = "" if key is None else key.decode("utf-8", "replace")
    malformed.report(text=text, place=_place(part, message), line=None, reason=why)


def _report_key(malformed: MalformedRows, message: Any, part: Range, dtype: pa.DataType) -> None:
    _report(malformed, message, part, f"the message's key does not become {dtype}")
