"""Inference of the schema from the first rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ....conf.errors import SchemaError
from .content import codec_of, compressed_blocks, line_ends
from .formats.columnar import footer
from .formats.lines import Head, LineFormat
from .store import FileAccess, Seen, kind_by_name, natural_key

_SAMPLE_BYTES = 16 << 20
_SAMPLE_FILES = 16
_GIVE = 'give it with the option `schema`, such as "id BIGINT, name STRING", or wait until there are rows'


class Sampler:
    """Inference of a schema from the first files by arrival: up to 16 MB of text and 16 files.

    A column is text if the sample has only nulls, if its kind differs between files, or if its values cannot be read as
    the inferred kind. With `unseen`, columns without a value keep the null type.
    """

    def __init__(
        self,
        format_of: Callable[[str, bytes], LineFormat | None],
        given: Sequence[str],
        access: FileAccess,
        *,
        unseen: bool = False,
    ) -> None:
        self._unseen = unseen
        self._format_of = format_of
        self._given = given
        self._access = access

    def schema(self, files: Mapping[str, Seen]) -> pa.Schema:
        """Return the schema of these files; raise SchemaError if there is no file or row, or if no schema fits."""
        paths = sorted(
            (path for path, seen in files.items() if seen[0]), key=lambda path: (files[path][1], natural_key(path))
        )
        where = ", ".join(map(repr, self._given))
        if not paths:
            raise SchemaError(f"there is no file with data at {where} to infer a schema from", hint=_GIVE)
        found: list[pa.Schema] = []
        left = _SAMPLE_BYTES
        for path in paths[:_SAMPLE_FILES]:
            with self._access.open(path) as file:
                codec = codec_of(file, kind_by_name(path)[1])
                file.seek(0)
                if self._format_of(path, b"" if codec else file.read(64)) is None:
                    foot = footer(file)
                    if foot is not None:
                        found.append(_normal(foot.schema))
                    continue
                start = self._start(path, codec, left)
            schema = self._of_text(path, start)
            if schema is not None:
                found.append(schema)
            left -= len(start)
            if left <= 0:
                break
        if not found:
            raise SchemaError(f"there is no row at {where} to infer a schema from", hint=_GIVE)
        unified = _unified(found)
        return unified if self._unseen else _final(unified)

    def _start(self, path: str, codec: str | None, size: int) -> bytes:
        with self._access.open(path) as file:
            if codec is None:
                return file.read(size)
            pieces: list[bytes] = []
            try:
                for _, block in compressed_blocks(file, codec, size=min(size, 1 << 20)):
                    pieces.append(block)
                    size -= len(block)
                    if size <= 0:
                        break
            except OSError:  # still being written; what there is of it will do
                pass
            return b"".join(pieces)

    def _of_text(self, path: str, start: bytes) -> pa.Schema | None:
        form = self._format_of(path, b"")
        assert form is not None
        try:
            head = form.head(start, complete=True)
            if head is None:
                return None
            sample = start[head.start :]
            sample = sample[: form.last_end(sample) or len(sample)]
            if not sample.strip() and form.name != "zeek":
                return None
            return self._readable(form, head, _normal(form.infer(sample, head)), sample)
        except SchemaError as error:
            raise SchemaError(f"file {path}: {error.problem}", expected=error.expected, hint=error.hint) from error
        except pa.ArrowInvalid as error:
            raise SchemaError(f"file {path} cannot be read as {form.name}: {error}", hint=_GIVE) from error

    def _readable(self, form: LineFormat, head: Head, schema: pa.Schema, sample: bytes) -> pa.Schema:
        """Return the schema, with text for times that the parser cannot read back, such as those with nanoseconds."""
        if form.name == "zeek":
            return schema
        few = sample[: line_ends(sample[: 1 << 20]) or len(sample)]
        for number, field in enumerate(schema):
            if not pa.types.is_timestamp(field.type):
                continue
            try:
                form.parser(head, schema, [field.name]).parse(few)
            except pa.ArrowInvalid:
                schema = schema.set(number, field.with_type(pa.string()))
        return schema


def normal_type(dtype: pa.DataType) -> pa.DataType:
    """Return the nearest type that Spark has, wide enough for every value."""
    types = pa.types
    if types.is_dictionary(dtype):
        return normal_type(dtype.value_type)
    if types.is_timestamp(dtype):
        return pa.timestamp("us", "UTC" if dtype.tz else None)
    if types.is_uint8(dtype):
        return pa.int16()
    if types.is_uint16(dtype):
        return pa.int32()
    if types.is_uint32(dtype):
        return pa.int64()
    if types.is_uint64(dtype):
        return pa.decimal128(20, 0)
    if types.is_float16(dtype):
        return pa.float32()
    if types.is_large_string(dtype) or types.is_string_view(dtype) or types.is_time(dtype):
        return pa.string()
    if types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype) or types.is_binary_view(dtype):
        return pa.binary()
    if types.is_date64(dtype):
        return pa.date32()
    if types.is_duration(dtype):
        return pa.duration("us")
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        return pa.list_(normal_type(dtype.value_type))
    if types.is_struct(dtype):
        return pa.struct([pa.field(field.name, normal_type(field.type)) for field in dtype])
    if types.is_map(dtype):
        return pa.map_(normal_type(dtype.key_type), normal_type(dtype.item_type))
    return dtype


def _normal(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, normal_type(field.type)) for field in schema])


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        pass
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            before = fields.setdefault(field.name, field)
            try:
                fields[field.name] = pa.unify_schemas(
                    [pa.schema([before]), pa.schema([field])], promote_options="permissive"
                )[0]
            except (pa.ArrowTypeError, pa.ArrowInvalid):
                fields[field.name] = pa.field(field.name, pa.string())
    return pa.schema(list(fields.values()))


def _final(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _without_null(field.type)) for field in schema])


def _without_null(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_null(dtype):
        return pa.string()
    if pa.types.is_list(dtype):
        return pa.list_(_without_null(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([pa.field(field.name, _without_null(field.type)) for field in dtype])
    return dtype
