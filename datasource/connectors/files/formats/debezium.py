"""Debezium's change events as lines of JSON, with or without their schema; the types that events encode."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .....conf.errors import SchemaError
from .....core.rows.exact_integers import Int64s
from .jsonlines import JsonFormat, JsonParser, has_null_line, why_not
from .lines import Head

ROW, OPERATION, SOURCE, KEY = "row", "op", "source", "key"
"""The columns of events: the row after the change, or before a deletion; the kind of change; its place in the source;
and, only in an inferred schema, the fields of the message's key."""

_log = logging.getLogger("upstream.debezium")
_UTC = pa.timestamp("us", "UTC")


class WireType(NamedTuple):
    """The form in which events write a column's values."""

    form: str  # "days", "ms", "us", "ns", "iso", "base64", "decimal" in base64, or "number"
    written: pa.DataType
    meant: pa.DataType


class EventSchema(NamedTuple):
    """The columns of a table as the schema of an event describes them."""

    types: Mapping[str, pa.DataType]  # by column; the null type for one without an equivalent
    encodings: Mapping[str, WireType]  # of the columns that are not written plainly
    source: pa.StructType


_UNITS = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_ISO = ("io.debezium.time.ZonedTimestamp", "io.debezium.time.IsoTimestamp")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_BASE64 = WireType("base64", pa.string(), pa.binary())
_PLAIN = {
    "boolean": pa.bool_(), "string": pa.string(), "bytes": pa.string(),
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float": pa.float32(), "float32": pa.float32(), "double": pa.float64(), "float64": pa.float64(),
}  # fmt: skip


def wire_type_of(name: str | None, precision: int = 38, scale: int = 0) -> WireType | None:
    """Return the encoding of a logical type by its name in Kafka Connect; None for a plain one."""
    if name in _DAYS:
        return WireType("days", pa.int32(), pa.date32())
    if name in _UNITS:
        return WireType(_UNITS[name], pa.int64(), pa.timestamp("us"))
    if name in _ISO:
        return WireType("iso", pa.string(), _UTC)
    if name == _DECIMAL:
        return WireType("decimal", pa.string(), pa.decimal128(min(precision, 38), scale))
    return None


def _encoding(node: Mapping[str, Any]) -> WireType | None:
    more = node.get("parameters") or {}
    known = wire_type_of(node.get("name"), int(more.get("connect.decimal.precision", 38)), int(more.get("scale", 0)))
    return _BASE64 if known is None and node["type"] == "bytes" else known


def _plain_type(node: Mapping[str, Any]) -> pa.DataType:
    """Return the type in which a value is written; null for a map, which has no fixed members."""
    kind = node["type"]
    if kind == "struct":
        return pa.struct([pa.field(each["field"], _plain_type(each)) for each in node["fields"]])
    if kind == "array":
        return pa.list_(_plain_type(node["items"]))
    return _PLAIN.get(kind, pa.null())


def _event_schema(node: Mapping[str, Any]) -> EventSchema:
    """Return the columns that the schema of an envelope describes."""
    parts = {each["field"]: each for each in node["fields"]}
    columns = {each["field"]: each for each in parts["after"]["fields"]}
    known = {name: _encoding(each) for name, each in columns.items()}
    encodings = {name: each for name, each in known.items() if each is not None}
    types = {name: encodings[name].meant if name in encodings else _plain_type(each) for name, each in columns.items()}
    return EventSchema(types, encodings, _plain_type(parts["source"]))


# Where Kafka Connect writes an event's schema: first in the value, which may be a member of the line.
_SCHEMA = re.compile(rb'(?:\A\s*|"value"\s*:\s*)\{\s*("schema")\s*:\s*(?=\{)')
_PAYLOAD = re.compile(rb'"payload"\s*:')
_NULL_LINE = re.compile(rb"(?m)^[ \t\r]*null[ \t\r]*$")
_TOMBSTONE = b'{"value":null}'
_DECODER = json.JSONDecoder()
# Events write the floats that JSON has no number for as text. Arrow's parser reads these words as numbers.
_WORDS = ("NaN", "Infinity", "-Infinity")
_WORD = re.compile(rb'"(NaN|-?Infinity)"')


def _without_schema(line: bytes) -> tuple[bytes, bytes]:
    """Return the text of a line's schema, and the line without it; no text if it has none."""
    start = _SCHEMA.search(line)
    end = None if start is None else _PAYLOAD.search(line, start.end())
    if start is None or end is None:
        return b"", line
    # The schema is most of the line, and mostly that of the line before.
    return line[start.end() : end.start()], line[: start.start(1)] + line[end.start() :]


def _described(text: bytes) -> EventSchema | None:
    if not text:
        return None
    try:
        return _event_schema(_DECODER.raw_decode(text.decode())[0])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise pa.ArrowInvalid(f"the schema of the event is no schema of a change: {error!r}") from error


def _unwrapped(value: Any) -> Any:
    """Return the event in a line's object: the line itself, or its member `value`, `payload`, or both."""
    for name in ("value", "payload"):
        if isinstance(value, dict) and OPERATION not in value and name in value:
            value = value[name]
    return value


def _event(line: bytes) -> Any:
    """Return the event in a line, if it has one; None for a tombstone, which has no value."""
    try:
        return _unwrapped(json.loads(line))
    except (ValueError, RecursionError):
        return ()


def _why_no_event(line: bytes) -> str | None:
    """Return why a line is not an event; None for an event, and for a tombstone."""
    event = _event(line)
    if event is None or (isinstance(event, dict) and OPERATION in event):
        return None
    return "it is no change event, as it has no member 'op'; for rows alone, the format is json"


def _lines(block: bytes) -> list[bytes]:
    return [line for line in block.split(b"\n") if line.strip()]


def new_columns(names: Iterable[str], known: Collection[str]) -> None:
    """Log the columns of events that the source's schema lacks, each once in a process."""
    fresh = [name for name in names if name not in known and name not in _reported]
    if fresh:
        _reported.update(fresh)
        _log.warning(
            "the source has added the column%s %s, which this query does not read: to read %s, start with a new "
            "checkpoint, and with the column%s in the option schema if you set it",
            *("s" * (len(fresh) > 1), ", ".join(fresh), "them" if len(fresh) > 1 else "it", "s" * (len(fresh) > 1)),
        )


_reported: set[str] = set()


class ChangeEventFormat(JsonFormat):
    """Lines that each hold a change event, alone or as the member `value` beside `key`."""

    name = "debezium"

    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        """Return the schema of events. Without a schema in the sample, the types are those of its JSON."""
        del head
        lines = _lines(sample)
        texts = dict.fromkeys(text for line in lines if (text := _without_schema(line)[0]))
        try:
            known = [found for text in texts if (found := _described(text)) is not None]
        except pa.ArrowInvalid as error:
            raise SchemaError(str(error), hint="name the columns with the option `schema`, and the key") from error
        row, source = (_struct_of(known), known[-1].source) if known else self._types(lines)
        fields = [pa.field(ROW, row), pa.field(OPERATION, pa.string()), pa.field(SOURCE, source)]
        key = next((names for line in lines[:100] if (names := key_names(_member(line, KEY)))), ())
        return pa.schema([*fields, *([pa.field(KEY, pa.struct([(name, pa.string()) for name in key]))] if key else [])])

    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> ChangeEventParser:
        del head
        return ChangeEventParser(schema, schema.names if columns is None else columns)

    def _types(self, lines: Sequence[bytes]) -> tuple[pa.StructType, pa.StructType]:
        """Return the types of rows and of their place in the source, inferred from events."""
        events = [event for line in lines if isinstance(event := _event(line), dict) and OPERATION in event]
        if not events:
            raise SchemaError(
                "there is no change event, whose columns could be inferred",
                expected="objects with the members before, after, source, and op",
                hint="name the columns with the option `schema`, and the key",
            )
        rows = [event[name] for event in events for name in ("before", "after") if isinstance(event.get(name), dict)]
        kinds: dict[_Path, set[type]] = {}
        for row in rows:
            _collect_kinds(row, (), kinds)
        floats = {path for path, found in kinds.items() if _FloatWord in found and found <= {_FloatWord, int, float}}
        sources = [event[SOURCE] for event in events if isinstance(event.get(SOURCE), dict)]
        return self._struct([_with_floats(row, (), floats) for row in rows]), self._struct(sources)

    def _struct(self, objects: Sequence[Any]) -> pa.StructType:
        if not any(objects):
            return pa.struct([])
        lines = b"\n".join(json.dumps(each).encode() for each in objects) + b"\n"
        return _typed(pa.struct(list(super().infer(lines, Head(0)))))


_Path = tuple[str, ...]


class _FloatWord(str):
    """A float that is written as text."""

    __slots__ = ()


def _collect_kinds(value: Any, path: _Path, kinds: dict[_Path, set[type]]) -> None:
    """Add the types of a row's values by their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _collect_kinds(inner, (*path, name), kinds)
    elif isinstance(value, list):
        for inner in value:
            _collect_kinds(inner, path, kinds)
    elif value is not None:
        kinds.setdefault(path, set()).add(_FloatWord if value in _WORDS else type(value))


def _with_floats(value: Any, path: _Path, floats: Collection[_Path]) -> Any:
    """Return a row with numbers in place of the words at some paths."""
    if isinstance(value, dict):
        return {name: _with_floats(inner, (*path, name), floats) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_floats(inner, path, floats) for inner in value]
    return float(value) if path in floats and isinstance(value, str) else value


def _float_words(kind: pa.StructType) -> re.Pattern[bytes] | None:
    """Return the pattern of floats as text in a row's columns and fields; None if the row has no floats."""
    held: dict[str, set[bool]] = {}
    _collect_floats(kind, held)
    names = [_quoted(name) for name, found in held.items() if found == {True}]
    if not names:
        return None
    word = rb'"(?:NaN|-?Infinity)"'
    return re.compile(rb"((?:%s)\s*:\s*)(%s|\[[^\[\]{}]*\])" % (b"|".join(map(re.escape, names)), word))


def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


def _collect_floats(kind: pa.StructType, held: dict[str, set[bool]]) -> None:
    """Add whether fields are floats, or lists of them, by their names: one name may be in several structs."""
    for field in kind:
        inner = field.type
        while pa.types.is_list(inner):
            inner = inner.value_type
        held.setdefault(field.name, set()).add(pa.types.is_floating(inner))
        if pa.types.is_struct(inner):
            _collect_floats(inner, held)


def key_names(key: Any) -> tuple[str, ...]:
    """Return the names of the fields of a message's key, with or without its schema beside it; none if it has none."""
    if isinstance(key, str | bytes):
        try:
            key = json.loads(key)
        except (ValueError, RecursionError):
            return ()
    if isinstance(key, dict) and key.keys() == {"schema", "payload"}:
        key = key["payload"]
    return tuple(key) if isinstance(key, dict) else ()


def _member(line: bytes, name: str) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) and OPERATION not in value else None


def _struct_of(schemas: Sequence[EventSchema]) -> pa.StructType:
    """Return the columns of all schemas of a table, each in its last type."""
    types = {name: kind for each in schemas for name, kind in each.types.items()}
    without = [name for name, kind in types.items() if pa.types.is_null(kind)]
    if without:
        raise SchemaError(
            f"the column {without[0]!r} of the events is a map, which JSON does not type",
            hint="name the columns wanted with the option `schema`, and the key",
        )
    return pa.struct(list(types.items()))


def _typed(kind: pa.DataType) -> Any:
    """Return a type with text in place of null, the type of what has no value yet."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _typed(field.type)) for field in kind])
    return pa.list_(_typed(kind.value_type)) if pa.types.is_list(kind) else kind


class ChangeEventParser(JsonParser):
    """A parser of events into :data:`ROW`, :data:`OPERATION`, and :data:`SOURCE`. All are null for a tombstone."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        super().__init__(schema, columns)
        self._row: pa.StructType = schema.field(ROW).type
        self._source: pa.DataType = schema.field(SOURCE).type
        self._floats = _float_words(self._row)

    def parse(self, block: bytes) -> pa.Table:
        """Return the events of a block; raise ArrowInvalid for another object, or another type of a value."""
        if has_null_line(block):
            block = _NULL_LINE.sub(_TOMBSTONE, block)
        if self._floats is not None and (b'NaN"' in block or b'Infinity"' in block):
            block = self._floats.sub(lambda found: found[1] + _WORD.sub(rb"\1", found[2]), block)
        if b'"schema"' not in block:
            return self._read(block, "")
        lines = _lines(block)
        places: dict[bytes, list[int]] = {}
        for at, line in enumerate(lines):
            text, lines[at] = _without_schema(line)
            places.setdefault(text, []).append(at)
        if len(places) == 1:
            return self._read(b"\n".join(lines), next(iter(places)))
        # After a change of the source's schema, each line is read by its own.
        tables = [self._read(b"\n".join(lines[at] for at in group), text) for text, group in places.items()]
        if any(table.num_rows != len(group) for table, group in zip(tables, places.values(), strict=True)):
            raise pa.ArrowInvalid("a line holds several objects")
        order = np.argsort(np.concatenate([np.array(group) for group in places.values()]))
        return pa.concat_tables(tables).take(pa.array(order))

    def sift(self, block: bytes, starts: Int64s, ends: Int64s) -> dict[int, str]:
        found: dict[int, str] = {}
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            line = _NULL_LINE.sub(_TOMBSTONE, block[start:end])
            why = why_not(line, pa.schema([]), ()) or _why_no_event(line)
            if why is not None:
                found[at] = why
        return found

    def _read(self, block: bytes, text: bytes | str) -> pa.Table:
        described = _described(text) if isinstance(text, bytes) else None
        encodings = {} if described is None else described.encodings
        new_columns(self._names(block) if described is None else described.types, self._row.names)
        try:
            return self._rows(block, encodings)
        except pa.ArrowInvalid:
            # With decimal.format=NUMERIC, decimals are numbers.
            decimals = [name for name, each in encodings.items() if each.form == "decimal"]
            if not any(re.search(rb"%s\s*:\s*[-0-9]" % re.escape(_quoted(name)), block) for name in decimals):
                raise
        numbers = {name: WireType("number", (meant := encodings[name].meant), meant) for name in decimals}
        return self._rows(block, {**encodings, **numbers})

    def _rows(self, block: bytes, encodings: Mapping[str, WireType]) -> pa.Table:
        row = pa.struct([(field.name, written_type(field.type, encodings.get(field.name))) for field in self._row])
        event = [(OPERATION, pa.string()), ("before", row), ("after", row), (SOURCE, self._source)]
        inner = [("payload", pa.struct(event))] if b'"payload"' in block else []
        outer = [("value", pa.struct([*event, *inner]))] if b'"value"' in block else []
        schema = pa.schema([*event, *inner, *outer])
        forms = _forms(JsonParser(schema, schema.names).parse(block), [bool(inner), bool(outer)])
        chosen = np.full(len(forms[0][0]), -1)
        for number, (operation, *_) in enumerate(forms):
            chosen[np.asarray(operation.is_valid()) & (chosen < 0)] = number
        self._check_tombstones(block, chosen)
        operation, before, after, source = _one_of(forms, np.maximum(chosen, 0))
        (rows,) = _one_of([[after], [before]], np.where(np.asarray(after.is_valid()), 0, 1))
        columns = [
            decoded(column, field.type, encodings.get(field.name))
            for column, field in zip(rows.flatten(), self._row, strict=True)
        ]
        fields = [pa.field(field.name, each.type) for field, each in zip(self._row, columns, strict=True)]
        made = {ROW: pa.StructArray.from_arrays(columns, fields=fields), OPERATION: operation, SOURCE: source}
        return pa.table({name: made[name] for name in self._columns})

    @staticmethod
    def _check_tombstones(block: bytes, chosen: Int64s) -> None:
        missing = np.flatnonzero(chosen < 0)
        if not len(missing):
            return
        lines = _lines(block)
        if len(lines) != len(chosen):
            raise pa.ArrowInvalid("a line holds several objects")
        for at in missing.tolist():
            why = _why_no_event(lines[at])
            if why is not None:
                raise pa.ArrowInvalid(why)

    @staticmethod
    def _names(block: bytes) -> Sequence[str]:
        """Return the names of the columns in the last event of a block; a column that is added is in all later ones."""
        event = _event(block[block.rstrip().rfind(b"\n") + 1 :])
        row = (event.get("after") or event.get("before")) if isinstance(event, dict) else None
        return tuple(row) if isinstance(row, dict) else ()


_Event = Sequence[pa.Array]


def _forms(table: pa.Table, wrapped: Sequence[bool]) -> list[_Event]:
    """Return the events of each form that a line may have, null where it has another."""
    inner, outer = wrapped
    forms: list[_Event] = [[table.column(at).combine_chunks() for at in range(4)]]
    if inner:
        forms.append(table.column("payload").combine_chunks().flatten())
    if outer:
        parts = table.column("value").combine_chunks().flatten()
        forms += [parts[:4], *([parts[4].flatten()] if inner else [])]
    return forms


def _one_of(choices: Sequence[_Event], chosen: Int64s) -> list[pa.Array]:
    """Return arrays whose elements are each of the choice with that number."""
    first = int(chosen[0]) if len(chosen) else 0
    if (chosen == first).all():
        return list(choices[first])
    places = pa.array(chosen * len(chosen) + np.arange(len(chosen)))
    return [pa.concat_arrays([each[at] for each in choices]).take(places) for at in range(len(choices[0]))]


def written_type(kind: pa.DataType, encoding: WireType | None) -> pa.DataType:
    """Return the type in which JSON holds the values of a column of type `kind`."""
    if encoding is not None and not _as_written(kind, encoding):
        return encoding.written
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_binary(kind) else kind


def decoded(column: pa.Array, kind: pa.DataType, encoding: WireType | None) -> pa.Array:
    """Return the values of a column of type `kind`; a timestamp without a zone stays so. Raise ArrowInvalid."""
    if encoding is not None and not _as_written(kind, encoding):
        column = _meant(column, encoding)
    elif pa.types.is_timestamp(kind) and pa.types.is_string(column.type):
        column = _instants(column)
    elif pa.types.is_binary(kind) and pa.types.is_string(column.type):
        column = _bytes(column)
    if column.type.equals(kind) or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type)):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError as error:
        raise pa.ArrowInvalid(f"values of type {column.type} do not become {kind}") from error


def _as_written(kind: pa.DataType, encoding: WireType) -> bool:
    """Return whether a column takes the values as they are written: numbers for times, text for bytes."""
    return (pa.types.is_integer(kind) and pa.types.is_integer(encoding.written)) or (
        pa.types.is_string(kind) and encoding.form in ("base64", "iso")
    )


def _meant(column: pa.Array, encoding: WireType) -> pa.Array:
    if encoding.form == "days":
        return column.cast(pa.int32()).cast(encoding.meant)
    if encoding.form == "iso":
        return _instants(column)
    if encoding.form == "base64":
        return _bytes(column)
    if encoding.form == "number":
        return column
    if encoding.form == "decimal":
        return column if pa.types.is_decimal(column.type) else _decimals(_bytes(column), encoding.meant)
    return column.cast(pa.int64()).cast(pa.timestamp(encoding.form)).cast(encoding.meant, safe=encoding.form != "ns")


def _instants(column: pa.Array) -> pa.Array:
    try:
        return column.cast(_UTC)
    except pa.ArrowInvalid as error:
        if "zone offset" not in str(error):
            raise
        return column.cast(pa.timestamp("us"))


def _bytes(column: pa.Array) -> pa.Array:
    import polars as pl

    if pa.types.is_binary(column.type):
        return column
    try:
        return pl.Series(column).str.decode("base64").to_arrow().cast(pa.binary())
    except pl.exceptions.ComputeError as error:
        raise pa.ArrowInvalid(f"the text is not in base64: {error}") from error


def _decimals(column: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Return decimals of their unscaled numbers, which are big-endian bytes in two's complement."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"\0", np.uint8)
    ends, lengths = offsets[1:], np.diff(offsets)
    most = int(lengths.max(initial=0))
    if most > 16:
        raise pa.ArrowInvalid(f"a decimal of {most} bytes has more than 38 digits")
    first = data[np.minimum(offsets[:-1], len(data) - 1)]
    number = np.zeros((len(column), 16), np.uint8)
    number[(lengths > 0) & (first >= 128)] = 255
    for place in range(most):
        rows = np.flatnonzero(lengths > place)
        number[rows, place] = data[ends[rows] - 1 - place]
    valid = pa.array(np.asarray(column.is_valid())).buffers()[1]
    made = pa.Array.from_buffers(kind, len(column), [valid, pa.py_buffer(number)])
    made.validate(full=True)
    return made
