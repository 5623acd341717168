"""JSON, one object a line, parsed by pyarrow."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .....conf.errors import SchemaError
from .....core.rows.exact_integers import Int64s
from .....core.rows.text import mapped_type
from .lines import Head, LineFormat, LineParser


class _Number(str):
    __slots__ = ()


class _Fraction(_Number):
    __slots__ = ()


# Arrow reads NaN and Infinity, as Python's json writes them.
_DECODER = json.JSONDecoder(strict=False, parse_int=_Number, parse_float=_Fraction, parse_constant=_Fraction)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_WORDS = {
    type(None): "null",
    str: "a string",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    _Number: "a number",
    _Fraction: "a number",
}


def why_not(line: bytes, schema: pa.Schema, times: Container[str]) -> str | None:
    """Return why a line is not an object of a schema, if a reason is found. Members in `times` are text with a day."""
    try:
        value: Any = _DECODER.decode(line.decode())
    except UnicodeDecodeError:
        return "the text is not UTF-8"
    except json.JSONDecodeError as error:
        if not line.strip() or error.msg.startswith("Unexpected UTF-8 BOM"):
            return None
        return _several(line) or f"it is not JSON: {error.msg} at character {error.pos + 1}"
    except RecursionError:
        return None
    if not isinstance(value, dict):
        return f"the line is {_WORDS[type(value)]} and not an object"
    for field in schema:
        found = value.get(field.name)
        if found is None:
            continue
        expected = _expected(field.type)
        if expected and type(found) not in expected:
            return f"member {field.name!r} is {_WORDS[type(found)]} and not {_WORDS[expected[0]]}"
        if field.name in times and not _DAY.match(found):
            return f"{str(found)!r} in member {field.name!r} is not a time"
        if pa.types.is_integer(field.type) and type(found) is _Fraction:
            return f"{str(found)!r} is not of type {field.type}"
    return None


def _several(line: bytes) -> str | None:
    text, at, count = line.decode().strip(), 0, 0
    while at < len(text):
        try:
            _, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            return None
        count += 1
        at += len(text) - at - len(text[at:].lstrip())
    return f"the line holds {count} objects"


def _expected(dtype: pa.DataType) -> tuple[type, ...]:
    types = pa.types
    if types.is_boolean(dtype):
        return (bool,)
    if types.is_integer(dtype) or types.is_floating(dtype):
        return (_Number, _Fraction)
    if types.is_string(dtype):
        return (str,)
    if types.is_struct(dtype):
        return (dict,)
    if types.is_list(dtype):
        return (list,)
    return ()


_BOM = b"\xef\xbb\xbf"
_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(.)", re.DOTALL)
_NULL_FIRST, _NULL_LATER = re.compile(rb"[ \t\r\n]*null"), re.compile(rb"\n[ \t\r]*null")
_LF = 10
# Spark's types, and Python's recursion, reach no further.
_MOST_DEEP = 100
_CHANGED = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_FAILED = re.compile(r"Failed to convert JSON to (.+?), couldn't parse:(.*)", re.DOTALL)
_JSON_WORDS = {"object": "an object", "array": "an array", "null": "null"}


class JsonFormat(LineFormat):
    """Lines that each hold one object. An absent member is null; a member that is not a column is ignored."""

    name = "json"

    def head(self, start: bytes, *, complete: bool) -> Head | None:
        """Return where the data begins; None if the first bytes may be those of a byte order mark."""
        if len(start) < len(_BOM) and _BOM.startswith(start) and not complete:
            return None
        return Head(len(_BOM) if start.startswith(_BOM) else 0)

    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        del head
        try:
            return _whole_numbers(_read(sample), sample)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            pass
        lines = [line for line in sample.split(b"\n") if line.strip() and _is_object(line)]
        try:
            sample = b"\n".join(lines or [line for line in sample.split(b"\n") if line.strip()][:1]) + b"\n"
            return _whole_numbers(_read(sample), sample)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise SchemaError(
                f"no one schema fits the objects: {_plain(error)}",
                hint='name the columns and their types with the option `schema`, such as "a BIGINT, b STRING"',
            ) from error

    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> JsonParser:
        del head
        return JsonParser(schema, schema.names if columns is None else columns)

    def check(self, schema: pa.Schema) -> None:
        for field in schema:
            try:
                _read(b"{}\n", pa.schema([field]))
            except pa.ArrowNotImplementedError as error:
                raise SchemaError(
                    f"column {field.name!r} is of type {field.type}, which cannot be read from JSON",
                    hint="give objects as STRUCT, with their members named",
                ) from error


class JsonParser(LineParser):
    """A parser of objects into the requested columns."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        fields = [schema.field(name) for name in columns]
        # Times are read as text first: pyarrow would take one without a zone for UTC without saying so, and a date is a
        # number to it.
        self._times = {field.name: field.type for field in fields if pa.types.is_temporal(field.type)}
        self._types = {field.name: field.type for field in fields if field.name not in self._times}
        self._narrow = [name for name, dtype in self._types.items() if "float" in str(dtype)]
        self._columns = list(columns)
        self._schema = pa.schema([(f.name, pa.string() if f.name in self._times else _written(f.type)) for f in fields])

    def parse(self, block: bytes) -> pa.Table:
        """Return the rows of a block. A timestamp column comes without a zone if the block's text names none."""
        if not block.isascii():
            try:
                block.decode("utf-8")
            except UnicodeDecodeError as error:
                raise pa.ArrowInvalid("the text is not UTF-8") from error
        if not block.strip():
            return self._schema.empty_table()
        if has_null_line(block):  # which Arrow takes for a row of nulls
            raise pa.ArrowInvalid("the line is null and not an object")
        table = _read(block, self._schema)
        for name, dtype in self._types.items():
            if not self._schema.field(name).type.equals(dtype):
                table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(dtype))
        for name in self._narrow:
            if _infinities(table.column(name)) > block.count(b"Infinity"):
                raise pa.ArrowInvalid(f"a number in member {name!r} is too large for {self._types[name]}")
        for name, dtype in self._times.items():
            at = self._columns.index(name)
            table = table.set_column(at, name, self._time(table.column(at), name, dtype))
        return table.select(self._columns)

    def sift(self, block: bytes, starts: Int64s, ends: Int64s) -> dict[int, str]:
        found: dict[int, str] = {}
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            why = why_not(block[start:end], self._schema, self._times)
            if why is not None:
                found[at] = why
        return found

    def reason(self, error: Exception) -> str:
        return _plain(error)

    def wrong_count(self, line: bytes, rows: int) -> str:
        del line
        return "the line holds no object" if rows == 0 else f"the line holds {rows} objects"

    def _time(self, column: pa.ChunkedArray, name: str, dtype: pa.DataType) -> pa.ChunkedArray:
        try:
            return column.cast(dtype)
        except pa.ArrowInvalid as error:
            if "zone offset" not in str(error):
                raise pa.ArrowInvalid(f"{str(error)[:200]} (column {name!r})") from error
        other = pa.timestamp(dtype.unit, None if dtype.tz else "UTC")
        converted = column.cast(other)
        self._times[name] = other
        return converted


def _written(dtype: pa.DataType) -> pa.DataType:
    """Return a type that holds a scaled decimal of any 38 digits where Arrow's reader, modulo 2¹²⁸, would wrap."""
    return mapped_type(dtype, lambda leaf: pa.decimal256(38, leaf.scale) if pa.types.is_decimal(leaf) else leaf)


def _infinities(column: pa.ChunkedArray) -> int:
    """Return how many infinite numbers of 32 bits a column holds at any depth."""
    if pa.types.is_struct(column.type):
        return sum(map(_infinities, column.flatten()))
    if pa.types.is_list(column.type):
        return _infinities(pc.list_flatten(column))
    return pc.sum(pc.is_inf(column)).as_py() or 0 if pa.types.is_float32(column.type) else 0


def has_null_line(block: bytes) -> bool:
    """Return whether a line begins with null."""
    if b"null" not in block:
        return False
    return _NULL_FIRST.match(block) is not None or _NULL_LATER.search(block) is not None


def _read(block: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """Return the rows of a block that has one; without a schema, of all members. Raise ArrowInvalid."""
    import pyarrow.json as json

    # Arrow ends the process where a block begins with null, even after a byte order mark, or where a type is too deep.
    first = _FIRST.match(block)
    if first is not None and first.group(1) != b"{":
        raise pa.ArrowInvalid("the line does not begin with an object")
    if schema is None and _depth(block) > _MOST_DEEP:
        raise pa.ArrowInvalid(f"values are nested deeper than {_MOST_DEEP} levels")
    # One block: pyarrow would infer types from the first alone, and lose its place in the next.
    return json.read_json(
        pa.BufferReader(block),
        read_options=json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


def _depth(block: bytes) -> int:
    """Return how deep the brackets of a line are nested at most, those within text included."""
    data = np.frombuffer(b"\n" + block, np.uint8)
    marks = data[np.isin(data, np.frombuffer(b"\n[]{}", np.uint8))]
    lines = marks == _LF
    depth = np.cumsum(np.where(lines, 0, np.where(marks & 2, 1, -1)))
    return int((depth - depth[np.maximum.accumulate(np.where(lines, np.arange(len(marks)), 0))]).max())


def _whole_numbers(table: pa.Table, sample: bytes) -> pa.Schema:
    """Return a table's schema, with decimals where pyarrow read whole numbers beyond 64 bits as floats."""
    schema = table.schema
    for at, field in enumerate(schema):
        if (
            not pa.types.is_floating(field.type)
            or not pc.any(pc.greater_equal(pc.abs(table.column(at)), 2.0**63)).as_py()
        ):
            continue
        whole = field.with_type(pa.decimal128(38, 0))
        try:
            _read(sample, pa.schema([whole]))
        except pa.ArrowInvalid:
            continue  # there are fractions, or more digits yet
        schema = schema.set(at, whole)
    return schema


def _is_object(line: bytes) -> bool:
    try:
        return _read(line + b"\n").num_rows == 1
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return False


def _plain(error: Exception) -> str:
    text = str(error)
    if found := _CHANGED.search(text):
        name, before, now = found.groups()
        if not name:
            return f"the line is {_JSON_WORDS.get(now, 'a ' + now)} and not an object"
        return f"member {name!r} is {_JSON_WORDS.get(now, 'a ' + now)} and not {_JSON_WORDS.get(before, 'a ' + before)}"
    if found := _FAILED.search(text):
        return f"{found.group(2)!r} is not of type {found.group(1)}"
    return re.sub(r" in row \d+$", "", text.removeprefix("JSON parse error: ")).rstrip(".")
