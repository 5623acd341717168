"""Zeek's tab-separated logs, by their own header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .....conf.errors import FeedChangedError, SchemaError
from .....core.rows.exact_integers import Int64s, fits
from .lines import Head, LineFormat, LineParser, rows_between

_TYPES = {
    "time": pa.timestamp("us", "UTC"), "interval": pa.float64(), "double": pa.float64(), "bool": pa.bool_(),
    "count": pa.int64(), "int": pa.int64(), "port": pa.int64(),
}  # fmt: skip
_NESTED = re.compile(r"(?:set|vector)\[(\w+)\]$")
_SECONDS = pa.decimal128(28, 9)
_COMMENT = 35


class ZeekFormat(LineFormat):
    """Logs whose header names fields and types; lines that begin with # are not rows.

    A time is an instant in UTC, exact to the microsecond. An interval is in seconds. Sets and vectors are lists.
    """

    name = "zeek"

    def head(self, start: bytes, *, complete: bool) -> Head | None:
        header: dict[str, list[str]] = {}
        separator, offset = "\t", 0
        while start[offset : offset + 1] == b"#":
            end = start.find(b"\n", offset)
            if end < 0:
                break
            line = start[offset:end].decode("utf-8", "replace").rstrip("\r")
            if line.startswith("#separator"):
                separator = _unescaped(line[len("#separator") :].strip(" "))
            else:
                name, *values = line.split(separator)
                header[name] = values
            offset = end + 1
            if "#fields" in header and "#types" in header:
                break
        if "#fields" not in header or "#types" not in header:
            if not complete and (not start or start[offset : offset + 1] in (b"#", b"")):
                return None
            if not start:
                return None
            raise SchemaError(
                "the file has no #fields and #types before its rows", expected="a Zeek log with its header"
            )
        names, types = header["#fields"], header["#types"]
        if len(names) != len(types) or len(set(names)) != len(names):
            raise SchemaError(
                f"the header's {len(names)} #fields and {len(types)} #types do not fit, or a name occurs twice"
            )
        return Head(
            offset,
            names,
            types=dict(zip(names, types, strict=True)),
            separator=separator,
            inner=_unescaped(header.get("#set_separator", [","])[0]),
            empty=header.get("#empty_field", ["(empty)"])[0],
            unset=header.get("#unset_field", ["-"])[0],
        )

    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        del sample
        return pa.schema([pa.field(name, _arrow_type(kind)) for name, kind in head.extra["types"].items()])

    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> ZeekParser:
        return ZeekParser(head, schema, schema.names if columns is None else columns)


class ZeekParser(LineParser):
    """A parser of one log's lines into the requested columns."""

    def __init__(self, head: Head, schema: pa.Schema, columns: Sequence[str]) -> None:
        self._head = head
        self._schema = pa.schema([schema.field(name) for name in columns])
        assert head.columns is not None
        self._names = list(head.columns)
        kinds: Mapping[str, str] = head.extra["types"]
        self._kinds = {name: kinds[name] for name in columns}
        self._fields = f"#fields{head.extra['separator']}{head.extra['separator'].join(self._names)}".encode()

    def parse(self, block: bytes) -> pa.Table:
        import pyarrow.csv as csv

        if block[:1] == b"#" or b"\n#" in block:
            block = self._without_comments(block)
        if not block.strip(b"\r\n"):
            return self._schema.empty_table()
        read_as = {name: _read_as(kind) for name, kind in self._kinds.items()}
        raw = csv.read_csv(
            pa.BufferReader(block),
            read_options=csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(block) + 1),
            parse_options=csv.ParseOptions(
                delimiter=self._head.extra["separator"], quote_char=False, double_quote=False
            ),
            convert_options=csv.ConvertOptions(
                column_types=read_as,
                include_columns=list(read_as) or self._names[:1],
                null_values=[self._head.extra["unset"]],
                true_values=["T"],
                false_values=["F"],
                strings_can_be_null=True,
            ),
        )
        columns: list[pa.ChunkedArray] = []
        for field in self._schema:
            column = self._converted(raw.column(field.name), self._kinds[field.name])
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.table(columns, schema=self._schema) if columns else raw.select([])

    def sift(self, block: bytes, starts: Int64s, ends: Int64s) -> dict[int, str]:
        separator, fields = self._head.extra["separator"].encode(), len(self._names)
        found: dict[int, str] = {}
        for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            got = block.count(separator, start, end) + 1
            if got != fields and b"\r" not in block[start:end].rstrip(b"\r\n"):
                found[at] = f"{got} fields instead of {fields}"
        return found

    def spans(self, block: bytes) -> tuple[Int64s, Int64s]:
        return rows_between(block, np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1, _COMMENT)

    def reason(self, error: Exception) -> str:
        text = str(error)
        if found := re.search(r"Expected (\d+) columns, got (\d+)", text):
            return f"{found.group(2)} fields instead of {found.group(1)}"
        if found := re.search(
            r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to .+?: (.*)", text, re.DOTALL
        ):
            name = self._names[int(found.group(1))]
            return (
                f"{found.group(2).removeprefix('invalid value ')} in field {name!r} is not a "
                f"{self._kinds.get(name, 'string')}"
            )
        return text.removeprefix("CSV parse error: ")

    def _without_comments(self, block: bytes) -> bytes:
        lines = block.splitlines(keepends=True) if b"\r" not in block else [line + b"\n" for line in block.split(b"\n")]
        for line in lines:
            if line.startswith(b"#fields") and line.rstrip(b"\r\n") != self._fields:
                raise FeedChangedError(
                    f"a Zeek log changes its fields in the middle of the file, to "
                    f"{line.rstrip().decode('utf-8', 'replace')}",
                    expected=self._fields.decode(),
                    hint="split the file before that header, and read the parts as separate feeds",
                )
        return b"".join(line for line in lines if not line.startswith(b"#"))

    def _converted(self, column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
        nested = _NESTED.match(kind)
        if kind == "time":
            return pa.chunked_array([_instants(chunk) for chunk in column.chunks], _TYPES["time"])
        if nested:
            return pa.chunked_array([self._list(chunk, nested.group(1)) for chunk in column.chunks], _arrow_type(kind))
        if pa.types.is_string(column.type):
            return pc.if_else(pc.equal(column, self._head.extra["empty"]), "", column)
        return column

    def _list(self, column: pa.Array, kind: str) -> pa.Array:
        dtype = _TYPES.get(kind, pa.string())
        empty = pc.equal(column, self._head.extra["empty"]).fill_null(False)
        parts = pc.split_pattern(column, self._head.extra["inner"])
        counts = pc.if_else(empty, 0, pc.list_value_length(parts).fill_null(0)).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(parts.filter(pc.invert(empty)))
        values = pc.if_else(pc.equal(values, self._head.extra["unset"]), pa.scalar(None, pa.string()), values)
        if kind == "time":
            values = _instants(values.cast(_SECONDS))
        elif kind == "bool":
            values = pc.equal(values, "T")
        else:
            values = values.cast(dtype)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=column.is_null() if column.null_count else None)


def _instants(seconds: pa.Array) -> pa.Array:
    """Return the instants of decimal seconds since the epoch, cut to the microsecond without floating point."""
    seconds = pa.concat_arrays([seconds])
    if seconds.offset:
        seconds = seconds.take(pa.array(np.arange(len(seconds))))
    # The halves of each 128-bit number of nanoseconds: the low one alone holds all years up to 2262.
    halves = np.frombuffer(seconds.buffers()[1], np.int64, 2 * len(seconds)) if len(seconds) else np.empty(0, np.int64)
    mask = seconds.is_null().to_numpy(zero_copy_only=False)
    low, high = halves[::2], halves[1::2]
    micros = low // 1000
    for row in np.flatnonzero((high != low >> 63) & ~mask).tolist():
        value = ((int(high[row]) << 64) + (int(low[row]) & 0xFFFF_FFFF_FFFF_FFFF)) // 1000
        if not fits(value):
            raise pa.ArrowInvalid(f"{seconds[row].as_py()} is too large for a time")
        micros[row] = value
    return pa.array(micros, pa.int64(), mask=mask if mask.any() else None).cast(_TYPES["time"])


def _read_as(kind: str) -> pa.DataType:
    return _SECONDS if kind == "time" else _TYPES.get(kind, pa.string())


def _arrow_type(kind: str) -> pa.DataType:
    nested = _NESTED.match(kind)
    if nested:
        return pa.list_(_TYPES.get(nested.group(1), pa.string()))
    return _TYPES.get(kind, pa.string())


def _unescaped(text: str) -> str:
    r"""Return a separator that Zeek writes as \x09, for example."""
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found.group(1), 16)), text)
