"""Values in Avro and Protobuf, each decoded by its library."""

from __future__ import annotations

import functools
import io
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import EnvironmentMissingError, OptionError, SchemaError, UpstreamError
from ..contract import MalformedRows
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
                    "there is no message yet, whose schema the registry could be asked for",
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
    # Bytes that are no text can be recognised by their hexadecimal form.
    malformed.report(text=value.hex(), place=place, line=None, reason=why or "the value cannot be read")


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise EnvironmentMissingError(
            "valueFormat=avro needs the package fastavro, which is not installed",
            hint="pip install 'pyspark-upstream[kafka]' where the driver and the workers run",
        ) from error
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
        raise OptionError(f"avroSchema is no Avro schema: {error}") from error


_NUMBERS = {"timeout": float, "max.retries": int, "retries.wait.ms": int, "retries.max.wait.ms": int}


@functools.lru_cache(maxsize=8)
def _registry(address: str, settings: tuple[tuple[str, str], ...]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise EnvironmentMissingError(
            "schemaRegistry needs confluent-kafka with its registry client, which is not installed",
            hint="pip install 'pyspark-upstream[kafka]' where the driver and the workers run",
        ) from error
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


def _arrow_of(kind: Any) -> pa.DataType:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise SchemaError(f"the Avro union {json.dumps(kind)} is no column", expected="one type, or it and null")
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
            f"the Avro type {name!r} is no column", hint="name the columns wanted with the option `schema`"
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
            f"descriptorFile={path!r} does not say what message {name!r} is: {error}",
            expected="what protoc --include_imports --descriptor_set_out writes, where the driver and every worker can "
            "read it",
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
