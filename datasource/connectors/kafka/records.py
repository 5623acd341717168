"""Values in Avro and Protobuf, each decoded by its library."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import OptionError, SchemaError, UpstreamError, needs_extra
from ..contract import MalformedRows
from ..files.formats.debezium import OPERATION, ROW, SOURCE, WireType, decoded, new_columns, wire_type_of
from .options import KafkaOptions
from .rows import RowsAtOffsets, ValueFormat, Where

_MAGIC = 0
_HEAD = 5


class _Records(ValueFormat):
    """A format of values that become records one by one."""

    def read(
        self, values: Sequence[bytes], schema: pa.Schema, columns: Sequence[str], malformed: MalformedRows, where: Where
    ) -> list[RowsAtOffsets]:
        wanted = pa.schema([schema.field(name) for name in columns])
        decode = self.decoder(columns)
        records: list[dict[str, Any]] = []
        positions: list[int] = []
        for position, value in enumerate(values):
            try:
                records.append(decode(value))
                positions.append(position)
            except UpstreamError:
                raise
            except Exception as error:  # noqa: BLE001 the libraries have no root for what bytes can be wrong about
                _refuse(malformed, value, where(position), str(error))
        try:
            return [(pa.Table.from_pylist(records, wanted), np.array(positions, dtype=np.int64))]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return [self._singly(records, positions, values, wanted, malformed, where)]

    def _singly(
        self,
        records: Sequence[dict[str, Any]],
        positions: Sequence[int],
        values: Sequence[bytes],
        wanted: pa.Schema,
        malformed: MalformedRows,
        where: Where,
    ) -> RowsAtOffsets:
        tables: list[pa.Table] = [wanted.empty_table()]
        fit: list[int] = []
        for record, position in zip(records, positions, strict=True):
            try:
                tables.append(pa.Table.from_pylist([record], wanted))
                fit.append(position)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                _refuse(malformed, values[position], where(position), str(error))
        return pa.concat_tables(tables), np.array(fit, dtype=np.int64)

    @abstractmethod
    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], dict[str, Any]]:
        """Return a function that makes a record of a value, and raises any error if the value is none."""


class AvroValues(_Records):
    """Avro, by a given schema or by that of a registry under the number before each value."""

    def __init__(self, options: KafkaOptions) -> None:
        self._registry = options.schema_registry
        self._settings = tuple(sorted(options.registry_settings.items()))
        self._given = options.avro_schema
        _fastavro()

    def infer(self, sample: Sequence[bytes]) -> pa.Schema:
        written = self._reader()
        if written is None:
            if not sample:
                raise SchemaError(
                    "there is no message yet, so the registry has no schema to look up",
                    hint="give the option avroSchema, or schema",
                )
            written = self._written(sample[0])
        if written["type"] != "record":
            raise SchemaError(f"the Avro schema is of type {written['type']!r}", expected="a record")
        return pa.schema([pa.field(field["name"], _arrow_of(field["type"])) for field in written["fields"]])

    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], dict[str, Any]]:
        read = _fastavro().schemaless_reader
        reader = self._reader()

        def decode(value: bytes) -> dict[str, Any]:
            stream = io.BytesIO(value)
            writer = reader
            if self._registry is not None:
                writer = self._written(value)
                stream.seek(_HEAD)
            record = read(stream, writer, reader)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes are left after the record")
            return record

        del columns
        return decode

    def _reader(self) -> Any:
        return None if self._given is None else _parsed(_text_of(self._given))

    def _written(self, value: bytes) -> Any:
        assert self._registry is not None
        if len(value) < _HEAD or value[0] != _MAGIC:
            raise ValueError("the value does not begin with a zero and the number of its schema")
        return _registered(self._registry, self._settings, int.from_bytes(value[1:_HEAD], "big"))


class _AvroEvent:
    """The columns of a table in the Avro schema of its change events."""

    def __init__(self, schema: Any) -> None:
        parts = {each["name"]: _not_null(each["type"]) for each in _expanded(schema, {}).get("fields", ())}
        row = parts.get("after")
        if not isinstance(row, dict) or "fields" not in row or OPERATION not in parts or SOURCE not in parts:
            raise SchemaError(
                "the Avro schema does not describe change events", expected="a record with after, source, and op"
            )
        self.source = _arrow_of(parts[SOURCE])
        self.written = {each["name"]: _arrow_of(each["type"]) for each in row["fields"]}
        found = {each["name"]: _connect_encoding(_not_null(each["type"])) for each in row["fields"]}
        self.encodings = {name: each for name, each in found.items() if each is not None}

    def table(self, events: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
        """Return events as a format of change events gives them; raise an error of Arrow for other values."""
        row = schema.field(ROW).type
        rows = [event["after"] or event["before"] for event in events]
        columns: list[pa.Array] = []
        for field in row:
            if field.name not in self.written:
                columns.append(pa.nulls(len(rows), field.type))
                continue
            written = self.written[field.name]
            values = pa.array([None if each is None else each[field.name] for each in rows], written)
            columns.append(decoded(values, field.type, self.encodings.get(field.name)))
        fields = [pa.field(field.name, each.type) for field, each in zip(row, columns, strict=True)]
        made = {
            ROW: pa.StructArray.from_arrays(columns, fields=fields),
            OPERATION: pa.array([event[OPERATION] for event in events], pa.string()),
            SOURCE: pa.array([event[SOURCE] for event in events], schema.field(SOURCE).type),
        }
        return pa.table({name: made[name] for name in schema.names})


class ChangeAvroValues(AvroValues):
    """Debezium's change events in Avro."""

    def infer(self, sample: Sequence[bytes]) -> pa.Schema:
        written = self._reader()
        if written is None and sample:
            written = self._written(sample[-1])
        if written is None:
            raise SchemaError(
                "there is no message yet, so the registry has no schema to look up",
                hint="give the option avroSchema, or schema",
            )
        event = _AvroEvent(written)
        types = {
            name: event.encodings[name].meant if name in event.encodings else kind
            for name, kind in event.written.items()
        }
        return pa.schema([(ROW, pa.struct(list(types.items()))), (OPERATION, pa.string()), (SOURCE, event.source)])

    def key_names(self, key: bytes | None) -> tuple[str, ...]:
        """Return the names of the fields of a message's key, which only a registry describes."""
        if self._registry is None or key is None or not key.startswith(b"\0"):
            return ()
        return tuple(each["name"] for each in self._written(key).get("fields", ()))

    def read(
        self, values: Sequence[bytes], schema: pa.Schema, columns: Sequence[str], malformed: MalformedRows, where: Where
    ) -> list[RowsAtOffsets]:
        wanted = pa.schema([schema.field(name) for name in columns])
        decode = self.decoder(columns)
        events: list[tuple[bytes, int, dict[str, Any]]] = []
        for position, value in enumerate(values):
            try:
                events.append((b"" if self._registry is None else value[:_HEAD], position, decode(value)))
            except UpstreamError:
                raise
            except Exception as error:  # noqa: BLE001 as for other records
                _refuse(malformed, value, where(position), str(error))
        found: list[RowsAtOffsets] = []
        for _, group in itertools.groupby(events, key=lambda each: each[0]):
            some = list(group)
            known = _AvroEvent(self._reader() or self._written(values[some[0][1]]))
            new_columns(known.written, schema.field(ROW).type.names)
            found += self._tables(known, some, wanted, lambda at, why: _refuse(malformed, values[at], where(at), why))
        return found

    def _tables(
        self,
        known: _AvroEvent,
        events: Sequence[tuple[bytes, int, dict[str, Any]]],
        wanted: pa.Schema,
        refuse: Callable[[int, str], None],
    ) -> list[RowsAtOffsets]:
        """Return the events that fit the columns, and refuse the others, which halving finds."""
        try:
            table = known.table([event for _, _, event in events], wanted)
            return [(table, np.array([position for _, position, _ in events], dtype=np.int64))]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, KeyError) as error:
            if len(events) == 1:
                refuse(events[0][1], str(error))
                return []
        halves = events[: len(events) // 2], events[len(events) // 2 :]
        return [found for half in halves for found in self._tables(known, half, wanted, refuse)]


class ProtobufValues(_Records):
    """Protobuf, by a file of descriptors."""

    def __init__(self, options: KafkaOptions) -> None:
        assert options.descriptor_file is not None
        assert options.message_name is not None
        self._file = os.path.abspath(options.descriptor_file)
        self._name = options.message_name
        _message(self._file, self._name)

    def infer(self, sample: Sequence[bytes]) -> pa.Schema:
        del sample
        return pa.schema([(field.name, _arrow_of_field(field)) for field in self._descriptor().fields])

    def decoder(self, columns: Sequence[str]) -> Callable[[bytes], dict[str, Any]]:
        message = _message(self._file, self._name)
        fields = [field for field in self._descriptor().fields if field.name in columns]
        return lambda value: _plain(message.FromString(value), fields)

    def _descriptor(self) -> Any:
        return _message(self._file, self._name).DESCRIPTOR


def _refuse(malformed: MalformedRows, value: bytes, place: str, why: str) -> None:
    # Bytes that are not text can be recognised by their hexadecimal form.
    malformed.report(text=value.hex(), place=place, line=None, reason=why or "the value cannot be read")


def _fastavro() -> Any:
    with needs_extra("kafka", "valueFormat=avro"):
        import fastavro
    return fastavro


def _text_of(given: str) -> str:
    if given.lstrip().startswith(("{", "[", '"')):
        return given
    try:
        with open(given, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise OptionError(
            f"avroSchema={given!r} is neither JSON nor a file that can be read: {error}",
            hint="give the schema itself, or a path that the driver and every worker can read",
        ) from error


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    try:
        return _fastavro().parse_schema(json.loads(text))
    except Exception as error:
        raise OptionError(f"avroSchema is not an Avro schema: {error}") from error


_NUMBERS = {"timeout": float, "max.retries": int, "retries.wait.ms": int, "retries.max.wait.ms": int}


@functools.lru_cache(maxsize=8)
def _registry(address: str, settings: tuple[tuple[str, str], ...]) -> Any:
    with needs_extra("kafka", "schemaRegistry"):
        from confluent_kafka.schema_registry import SchemaRegistryClient
    try:
        given = {name: _NUMBERS.get(name, str)(value) for name, value in settings}
        return SchemaRegistryClient({"timeout": 30.0, **given, "url": address})
    except (ValueError, TypeError, OSError) as error:
        raise OptionError(
            f"the client of the schema registry refuses its settings: {error}",
            hint="correct the options that begin with schemaRegistry",
        ) from error


# A schema never changes under its number.
@functools.lru_cache(maxsize=1024)
def _registered(address: str, settings: tuple[tuple[str, str], ...], number: int) -> Any:
    """Return a schema of the registry."""
    client = _registry(address, settings)
    from confluent_kafka.schema_registry import SchemaRegistryError

    try:
        found = client.get_schema(number)
    except SchemaRegistryError as error:
        if error.http_status_code == 404:
            raise ValueError(f"the registry has no schema {number}") from error
        raise _no_answer(address, error) from error
    except Exception as error:  # the transport's and the token server's errors have no common root
        raise _no_answer(address, error) from error
    if found.schema_type not in {None, "AVRO"}:
        raise ValueError(f"schema {number} of the registry is {found.schema_type}, not Avro")
    return _fastavro().parse_schema(json.loads(found.schema_str))


def _no_answer(address: str, error: Exception) -> UpstreamError:
    return UpstreamError(
        f"the schema registry at {address} does not answer: {error}",
        hint="see that it is up and can be reached from the workers, and correct the options that begin with "
        "schemaRegistry; then restart",
    )


_AVRO = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "uuid": pa.string(),
}


def _expanded(kind: Any, known: dict[str, Any]) -> Any:
    """Return a parsed Avro schema with the definitions of named types in place of their names."""
    if isinstance(kind, list):
        return [_expanded(each, known) for each in kind]
    if isinstance(kind, str):
        return known.get(kind, kind)
    made = dict(kind)
    for name in ("type", "items", "values"):
        if isinstance(made.get(name), (dict, list)) or (name != "type" and name in made):
            made[name] = _expanded(made[name], known)
    if "fields" in made:
        made["fields"] = [{**each, "type": _expanded(each["type"], known)} for each in made["fields"]]
    if "name" in made:
        known[made["name"]] = made
    return made


def _not_null(kind: Any) -> Any:
    """Return the type of a union with null, and any other one as it is."""
    others = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    return others[0] if len(others) == 1 else kind


def _connect_encoding(kind: Any) -> WireType | None:
    """Return the encoding that Kafka Connect notes in a type; None where Avro's own logical type has it."""
    if not isinstance(kind, dict) or kind.get("logicalType") in {*_LOGICAL, "decimal"}:
        return None
    return wire_type_of(kind.get("connect.name"))


def _arrow_of(kind: Any) -> pa.DataType:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise SchemaError(f"the Avro union {json.dumps(kind)} is not a column", expected="one type, or it and null")
        return _arrow_of(others[0])
    if isinstance(kind, str):
        kind = {"type": kind}
    name = kind["type"]
    if isinstance(name, (dict, list)):
        return _arrow_of(name)
    logical = kind.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(kind["precision"], kind.get("scale", 0))
    if name == "array":
        return pa.list_(_arrow_of(kind["items"]))
    if name == "map":
        return pa.map_(pa.string(), _arrow_of(kind["values"]))
    if name == "record":
        return pa.struct([pa.field(field["name"], _arrow_of(field["type"])) for field in kind["fields"]])
    if name not in _AVRO:
        raise SchemaError(
            f"the Avro type {name!r} is not a column", hint="name the columns wanted with the option `schema`"
        )
    return _AVRO[name]


@functools.lru_cache(maxsize=64)
def _message(path: str, name: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    try:
        with open(path, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
        pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            pool.Add(each)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except Exception as error:
        raise OptionError(
            f"descriptorFile={path!r} does not define the message {name!r}: {error}",
            expected="the output of protoc --include_imports --descriptor_set_out, which the driver and every worker "
            "can read",
        ) from error


def _arrow_of_field(field: Any) -> pa.DataType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single(key), _single(value))
    single = _single(field)
    return pa.list_(single) if field.is_repeated else single


def _single(field: Any) -> pa.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return pa.timestamp("us", "UTC")
        return pa.struct([pa.field(each.name, _arrow_of_field(each)) for each in field.message_type.fields])
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.int64(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    return kinds.get(field.cpp_type) or (pa.binary() if field.type == field.TYPE_BYTES else pa.string())


def _plain(message: Any, fields: Sequence[Any]) -> dict[str, Any]:
    """Return a message as a record; a field with presence that is not set is null."""
    record: dict[str, Any] = {}
    for field in fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                inner = field.message_type.fields_by_name["value"]
                record[field.name] = [(key, _value(value[key], inner)) for key in value]
            else:
                record[field.name] = [_value(each, field) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            record[field.name] = None
        else:
            record[field.name] = _value(value, field)
    return record


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            import datetime as dt

            return dt.datetime.fromtimestamp(0, dt.timezone.utc) + dt.timedelta(microseconds=value.ToMicroseconds())
        return _plain(value, field.message_type.fields)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
