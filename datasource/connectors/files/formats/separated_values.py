"""CSV and its kin, parsed by pyarrow."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .....conf.errors import SchemaError
from .....core.rows.exact_integers import Int64s
from .lines import Head, LineFormat, LineParser, row_ends, rows_between

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_NUMBER = r"^[ \t]*[+-]?(?:[0-9.][0-9.eE+-]*|[nN][aA][nN].*|[iI][nN][fF].*)[ \t]*$"
_DAY = r"^[ \t]*[0-9]{4}-[0-9]{2}-[0-9]{2}"


def refused(fields: pa.ChunkedArray, dtype: pa.DataType) -> tuple[list[int], list[str]]:
    """Return the places of fields that are not values of a type, and these fields as text.

    Fields are null where they mean null. Arrow refuses every field found, and some others.
    """
    try:
        texts = fields.cast(pa.string())
    except pa.ArrowInvalid:
        return _no_text(fields)
    pattern = _pattern(dtype)
    if pattern is None:
        return [], []
    wrong = pc.fill_null(pc.invert(pc.match_substring_regex(texts, pattern)), False)
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        wrong = pc.or_(wrong, _no_day(texts))
    places = pc.indices_nonzero(wrong)
    return places.to_pylist(), texts.take(places).to_pylist()


def texts_as(texts: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Return texts as values of a type; raise ArrowInvalid for one that is beyond it, or is not written in decimal."""
    if pa.types.is_integer(dtype) and (wrong := refused(texts, dtype)[1]):
        raise pa.ArrowInvalid(f"'{wrong[0]}' is not of type {dtype}")
    texts = pc.utf8_trim(texts, " \t")
    if pa.types.is_decimal(dtype):
        # Arrow scales modulo 2¹²⁸. What is below this bound stays below 2¹²⁷, where the cast counts its digits.
        sizes = pc.abs(texts.cast(pa.float64()))
        if pc.any(pc.greater_equal(sizes, 1.5 * 10.0 ** (dtype.precision - dtype.scale))).as_py():
            raise pa.ArrowInvalid(f"a number is too large for {dtype}")
    values = texts.cast(dtype)
    if pa.types.is_floating(dtype):
        infinite = texts.filter(pc.fill_null(pc.is_inf(values), False))
        if not pc.all(pc.match_substring(infinite, "inf", ignore_case=True), min_count=0).as_py():
            raise pa.ArrowInvalid(f"a number is too large for {dtype}")
    return values


def _has_beyond(values: pa.ChunkedArray) -> bool:
    """Return whether a float is infinite, or a decimal has too many digits."""
    if pa.types.is_floating(values.type):
        return bool(pc.any(pc.is_inf(values)).as_py())
    ends = pc.min_max(values).as_py().values()
    return any(end is not None and abs(end) >= 10 ** (values.type.precision - values.type.scale) for end in ends)


def _pattern(dtype: pa.DataType) -> str | None:
    types = pa.types
    if types.is_integer(dtype):
        most = _DIGITS[dtype.bit_width]
        return rf"^[ \t]*[+-]?0*[0-9]{{1,{most}}}[ \t]*$"
    if types.is_floating(dtype) or types.is_decimal(dtype):
        return _NUMBER
    if types.is_boolean(dtype):
        return r"(?i)^[ \t]*(?:0|1|true|false)[ \t]*$"
    if types.is_date(dtype):
        return _DAY + r"[ \t]*$"
    if types.is_timestamp(dtype):
        return _DAY + r"(?:[zZ]|[T ](?:[01][0-9]|2[0-3]).*)?[ \t]*$"
    return None


def _no_day(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which texts do not begin with a day that exists: February 30th, for example, does not."""
    import polars as pl

    days = pl.Series(texts).str.strip_chars(" \t").str.slice(0, 10)
    wrong = days.is_not_null() & days.str.to_date("%Y-%m-%d", strict=False).is_null()
    return pa.chunked_array([wrong.to_arrow()])


def _no_text(fields: pa.ChunkedArray) -> tuple[list[int], list[str]]:
    found: list[tuple[int, str]] = []
    for place, field in enumerate(fields.to_pylist()):
        if field is None:
            continue
        try:
            field.decode()
        except UnicodeDecodeError:
            found.append((place, field.decode("utf-8", "replace")))
    return [place for place, _ in found], [text for _, text in found]


_LEADING_ZERO = r"^[+-]?0[0-9xX]"
_WHOLE = r"^[+-]?[0-9]+$"
_SPACE, _PLUS, _MINUS, _ZERO = b" +-0"


def without_loss(
    schema: pa.Schema, texts: Callable[[list[str]], pa.Table], keys: Collection[str], time: str | None
) -> pa.Schema:
    """Return the schema, with text in place of types that would read different fields as one value.

    A key column (`keys`, lower-case) is text unless each sampled field is written exactly as its value, so never a
    float. Any other is text if a whole number begins with a zero (`007`, `0x10`), or if all are whole numbers and some
    exceed 64 bits. For the column `time`, only the value counts. `texts` returns columns as written.
    """
    doubted = [field.name for field in schema if field.name != time and _may_lose(field, keys)]
    if not doubted:
        return schema
    written = texts(doubted)
    for name in doubted:
        at = schema.get_field_index(name)
        if _loses(written.column(name), schema.field(at).type, key=name.lower() in keys):
            schema = schema.set(at, pa.field(name, pa.string()))
    return schema


def _may_lose(field: pa.Field, keys: Collection[str]) -> bool:
    types = pa.types
    if field.name.lower() in keys:
        return not (types.is_string(field.type) or types.is_null(field.type))
    return types.is_integer(field.type) or types.is_floating(field.type)


def _loses(texts: pa.ChunkedArray, dtype: pa.DataType, *, key: bool) -> bool:
    texts = texts.drop_null()
    if not key:
        if pa.types.is_integer(dtype):
            return _any(texts, _LEADING_ZERO)
        # Inferred as floats: some field has a point, or too many digits.
        whole = pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py()
        return bool(whole) and len(texts) > 0
    if pa.types.is_floating(dtype):
        return True
    try:
        return not texts.cast(dtype).cast(pa.string()).equals(texts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return True


def _any(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def written_otherwise(fields: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which fields, if numbers, are not written as their whole number: `00123`, `+1`, `-0`, ` 7`."""
    chunks = [_otherwise(chunk) for chunk in fields.chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.bool_)


def _otherwise(fields: pa.Array) -> npt.NDArray[np.bool_]:
    _, offsets, values = fields.buffers()
    if not len(fields) or offsets is None or values is None or not values.size:
        return np.zeros(len(fields), dtype=np.bool_)
    ends = np.frombuffer(offsets, np.int32)[fields.offset : fields.offset + len(fields) + 1]
    data = np.frombuffer(values, np.uint8)
    sizes = np.diff(ends)
    first = data[np.minimum(ends[:-1], len(data) - 1)]
    last = data[ends[1:] - 1]
    found = (first == _ZERO) & (sizes > 1) | (first == _PLUS) | (first <= _SPACE) | (last <= _SPACE)
    negative = np.flatnonzero((first == _MINUS) & (sizes > 1))
    found[negative] |= data[ends[negative] + 1] == _ZERO
    return found & (sizes > 0)


_BOM = b"\xef\xbb\xbf"
_COUNT = re.compile(r"Expected (\d+) columns, got (\d+)")
_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (.+?): (.*)", re.DOTALL)
_SMALL = 1 << 16
_ZONE = re.compile(r"In CSV column #(\d+): .*expected (?:a|no) zone offset", re.DOTALL)


class DelimitedFormat(LineFormat):
    """Lines of fields between separators.

    `multi_line` allows line ends in quoted fields, in rows of at most `max_row_bytes`. In a key column inferred as
    whole numbers, a field in another spelling is malformed: the number would be another key's. `key` is empty if the
    user gives the types.
    """

    name = "csv"

    def __init__(
        self,
        *,
        header: bool,
        sep: str,
        quote: str,
        multi_line: bool,
        null_value: str,
        max_row_bytes: int = 1 << 20,
        key: Sequence[str] = (),
        time: str | None = None,
    ) -> None:
        self.key = frozenset(name.strip("`").lower() for name in key)
        self.time = time
        self.header = header
        self.sep = sep
        self.quote = quote
        self.multi_line = multi_line
        self.max_row_bytes = max_row_bytes
        self.null_values = tuple(dict.fromkeys(("", null_value)))
        # Files of one feed mostly begin alike.
        self._last_header: tuple[bytes, list[str]] = (b"", [])

    def head(self, start: bytes, *, complete: bool) -> Head | None:
        begin = len(_BOM) if start.startswith(_BOM) else 0
        if not self.header:
            if len(start) < len(_BOM) and _BOM.startswith(start) and not complete:
                return None
            return Head(begin)
        # Blank lines before the header are skipped, as pyarrow and Spark do.
        while begin < len(start) and start[begin] in b"\r\n":
            begin += 1
        end = start.find(b"\n", begin)
        while end >= 0 and self.multi_line and start.count(self.quote.encode(), begin, end) % 2:
            end = start.find(b"\n", end + 1)
        if (len(start) if end < 0 else end) - begin > self.max_row_bytes:
            raise SchemaError(
                f"the column names that begin with {start[begin : begin + 100]!r} do not end within "
                f"{self.max_row_bytes} bytes",
                expected="a line end, and quotes that are closed",
                hint="correct the file, or raise the option maxRowBytes",
            )
        if end < 0:
            if not complete or begin >= len(start):
                return None
            end = len(start) - 1
        line = start[begin : end + 1]
        if self._last_header[0] != line:
            self._last_header = (line, self._names(line))
        return Head(end + 1, self._last_header[1])

    def infer(self, sample: bytes, head: Head) -> pa.Schema:
        """Return pyarrow's schema of well-formed lines, with text for types that would lose part of a field."""
        import pyarrow.csv as csv

        names = head.columns
        if names is None:
            first = sample[: sample.find(b"\n") + 1 or len(sample)]
            names = [f"_c{number}" for number in range(len(self._names(first, filled=True)))]

        def read(**more: Any) -> pa.Table:
            return csv.read_csv(
                pa.BufferReader(sample),
                read_options=csv.ReadOptions(use_threads=False, column_names=names, block_size=len(sample) + 1),
                parse_options=self.parse_options(skip_wrong=True),
                convert_options=csv.ConvertOptions(**self.nulls(), **more),
            )

        def texts(some: list[str]) -> pa.Table:
            return read(include_columns=some, column_types=dict.fromkeys(some, pa.string()))

        return without_loss(read().schema, texts, self.key, self.time)

    def parser(self, head: Head, schema: pa.Schema, columns: Sequence[str] | None) -> DelimitedParser:
        return DelimitedParser(self, head.columns or schema.names, schema, columns)

    def last_end(self, block: bytes) -> int:
        if not self.multi_line:
            return block.rfind(b"\n") + 1
        ends = row_ends(block, self.quote.encode(), self.max_row_bytes, final=False)
        return int(ends[-1]) if len(ends) else 0

    def check(self, schema: pa.Schema) -> None:
        import pyarrow.csv as csv

        for field in schema:
            try:
                csv.read_csv(
                    pa.BufferReader(b"\n"),
                    read_options=csv.ReadOptions(use_threads=False, column_names=["a", "b"]),
                    convert_options=csv.ConvertOptions(column_types={"a": field.type}),
                )
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
                raise SchemaError(
                    f"column {field.name!r} is of type {field.type}, which a CSV field cannot hold",
                    hint="give it as STRING, and take it apart in the query",
                ) from error

    def parse_options(self, *, skip_wrong: bool = False) -> Any:
        import pyarrow.csv as csv

        return csv.ParseOptions(
            delimiter=self.sep,
            quote_char=self.quote,
            newlines_in_values=self.multi_line,
            invalid_row_handler=(lambda _: "skip") if skip_wrong else None,
        )

    def nulls(self) -> dict[str, Any]:
        """Return pyarrow's options for nulls: as in Spark, an empty field is null and "" is an empty string."""
        return {"null_values": list(self.null_values), "strings_can_be_null": True, "quoted_strings_can_be_null": False}

    def _names(self, line: bytes, *, filled: bool = False) -> list[str]:
        import pyarrow.csv as csv

        try:
            table = csv.read_csv(
                pa.BufferReader(line.rstrip(b"\r\n") + b"\n"),
                read_options=csv.ReadOptions(use_threads=False, block_size=len(line) + 2),
                parse_options=self.parse_options(),
            )
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise SchemaError(f"the line of column names {line[:200]!r} cannot be read: {error}") from error
        names = [name or f"_c{number}" for number, name in enumerate(table.column_names)]
        twice = sorted(name for name, count in collections.Counter(names).items() if count > 1)
        if twice and not filled:
            raise SchemaError(
                "the column name"
                + ("s " if len(twice) > 1 else " ")
                + ", ".join(map(repr, twice))
                + " occurs twice in a header",
                expected="each column named once",
                hint="rename one of them in the file, or set header=false and name the columns with the option "
                "`schema`",
            )
        return names


class DelimitedParser(LineParser):
    """A parser of one file's lines into the requested columns."""

    def __init__(
        self, form: DelimitedFormat, names: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None
    ) -> None:
        self._form = form
        self._names = list(names)
        self._wanted = list(columns) if columns is not None else schema.names
        self._types: dict[str, pa.DataType] = {field.name: field.type for field in schema if field.name in self._wanted}
        # Of the key: read as they are written, and numbers only then.
        self._exact = {
            name: dtype
            for name, dtype in self._types.items()
            if name.lower() in form.key and name != form.time and pa.types.is_integer(dtype)
        }
        self._whole = {
            name: dtype for name, dtype in self._types.items() if pa.types.is_integer(dtype) and name not in self._exact
        }
        # Arrow's CSV reader scales decimals modulo 2¹²⁸, then counts no digits, and makes a large float infinite.
        decimals = {name: dtype for name, dtype in self._types.items() if pa.types.is_decimal(dtype)}
        self._wide = {name: dtype for name, dtype in decimals.items() if dtype.precision + dtype.scale > 38}
        self._bounded = {
            name: dtype
            for name, dtype in self._types.items()
            if pa.types.is_floating(dtype) or (name in decimals and name not in self._wide)
        }
        self._quote = form.quote.encode()
        quote, sep = re.escape(self._quote), re.escape(form.sep.encode())
        field = _closed_field(quote, sep)
        # A line whose quotes are closed, so that it is one row however many follow.
        self._closed = re.compile(b"%b(?:%b%b)*" % (field, sep, field), re.DOTALL)

    def parse(self, block: bytes) -> pa.Table:
        """Return the rows of a block. A timestamp column comes without a zone if the block's text names none."""
        import pyarrow.csv as csv

        # For a few lines the reader that starts no threads is much quicker.
        parse = csv.read_csv if len(block) > _SMALL else _read_small
        # Arrow reads 0x10 as 16, and Spark reads no number. Rarely does a block have these letters.
        doubted = dict(self._wide)
        if b"0x" in block or b"0X" in block:
            doubted |= self._whole
        for _ in range(2 * len(self._types) + 2):
            as_text = dict.fromkeys([*self._exact, *doubted], pa.string())
            try:
                table = parse(
                    pa.BufferReader(block),
                    read_options=csv.ReadOptions(
                        use_threads=False, column_names=self._names, block_size=len(block) + 1
                    ),
                    parse_options=self._form.parse_options(),
                    convert_options=csv.ConvertOptions(
                        column_types=self._types | as_text,
                        include_columns=self._wanted or self._names[:1],
                        **self._form.nulls(),
                    ),
                )
                bounded = {name: dtype for name, dtype in self._bounded.items() if name not in doubted}
                if beyond := [name for name in bounded if _has_beyond(table.column(name))]:
                    doubted |= {name: bounded[name] for name in beyond}
                    continue
                return self._numbered(table, doubted) if self._wanted else table.select([])
            except pa.ArrowInvalid as error:
                if not self._other_zone(error):
                    raise
        raise pa.ArrowInvalid("times with and without a zone")

    def _numbered(self, table: pa.Table, doubted: Mapping[str, pa.DataType]) -> pa.Table:
        """Convert key and `doubted` columns from text to numbers; raise ArrowInvalid where that is not exact."""
        for name, dtype in (self._exact | dict(doubted)).items():
            fields = table.column(name)
            otherwise = np.flatnonzero(written_otherwise(fields) if name in self._exact else [])
            if len(otherwise):
                raise pa.ArrowInvalid(_written_otherwise(fields[int(otherwise[0])].as_py(), name, dtype))
            if name in doubted and (wrong := refused(fields, dtype)[1]):
                raise pa.ArrowInvalid(f"'{wrong[0]}' in column {name!r} is not of type {dtype}")
            try:
                numbers = texts_as(fields, dtype) if name in doubted else fields.cast(dtype)
            except pa.ArrowInvalid:  # whose words matter where there is one line
                raise pa.ArrowInvalid(f"'{fields[0]}' in column {name!r} is not of type {dtype}") from None
            table = table.set_column(table.schema.get_field_index(name), name, numbers)
        return table

    def spans(self, block: bytes) -> tuple[Int64s, Int64s]:
        if self._form.multi_line:
            ends = row_ends(block, self._quote, self._form.max_row_bytes, final=True)
        else:
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1
        return rows_between(block, ends)

    def quick_count(self, block: bytes) -> int:
        if self._form.multi_line and self._quote in block:
            return len(self.spans(block)[0])
        return super().quick_count(block)

    def sift(self, block: bytes, starts: Int64s, ends: Int64s) -> dict[int, str]:
        """Return the lines with a wrong number of fields, an open quote, or a field of another type, with reasons."""
        if self._form.multi_line:
            return {at: self.wrong_count(block[starts[at] : ends[at]], 1) for at in self._open(block, starts, ends)}
        if block.count(b"\r") != block.count(b"\r\n"):
            return {}
        lines = [block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        found: dict[int, str] = {}
        for at, line in enumerate(lines):
            if self._quote in line and not self._closed.fullmatch(line.rstrip(b"\r\n")):
                found[at] = self.wrong_count(line, 1)
        rest = [at for at in range(len(lines)) if at not in found]
        table, wrong = self._fields([lines[at] for at in rest])
        if table is None:
            return found
        found |= {rest[at]: why for at, why in wrong.items()}
        kept = [at for number, at in enumerate(rest) if number not in wrong]
        for name, dtype in self._types.items():
            for place, text in zip(*refused(table.column(name), dtype), strict=True):
                what = (
                    f"column {name!r} is not UTF-8"
                    if "\ufffd" in text
                    else f"'{text}' in column {name!r} is not of type {dtype}"
                )
                found.setdefault(kept[place], what)
        for name, dtype in self._exact.items():
            fields = table.column(name)
            for place in np.flatnonzero(written_otherwise(fields)).tolist():
                text = fields[place].as_py().decode("utf-8", "replace")
                found.setdefault(kept[place], _written_otherwise(text, name, dtype))
        return found

    def _fields(self, lines: Sequence[bytes]) -> tuple[pa.Table | None, dict[int, str]]:
        """Return the wanted columns as written (None if pyarrow cannot split them), and wrong lines with reasons."""
        import pyarrow.csv as csv

        wrong: dict[int, str] = {}

        def note(row: Any) -> str:
            wrong[row.number - 1] = f"{row.actual_columns} fields instead of {row.expected_columns}"
            return "skip"

        text = b"".join(lines)
        options = self._form.parse_options()
        options.invalid_row_handler = note
        try:
            table = csv.read_csv(
                pa.BufferReader(text),
                read_options=csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(text) + 1),
                parse_options=options,
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.binary()),
                    include_columns=self._wanted or self._names[:1],
                    **self._form.nulls(),
                ),
            )
        except pa.ArrowInvalid:
            return None, {}
        return (table, wrong) if table.num_rows + len(wrong) == len(lines) else (None, {})

    def doubtful(self, block: bytes) -> bool:
        """Return whether a quote may have swallowed a line end without effect on the count."""
        if self._quote not in block:
            return False
        if self._form.multi_line:
            return bool(self._open(block, *self.spans(block)))
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n") and block.count(b"\n") > 1:
            return True
        line = block[block.rfind(b"\n", 0, max(0, len(block) - 1)) + 1 :]
        if line.count(self._quote) % 2 == 0:
            return False
        # An open quote would join the line to itself.
        line = line.rstrip(b"\r\n") + b"\n"
        try:
            return self.parse(line + line).num_rows != 2
        except pa.ArrowInvalid:
            return True

    def reason(self, error: Exception) -> str:
        text = str(error)
        if found := _COUNT.search(text):
            return f"{found.group(2)} fields instead of {found.group(1)}"
        if found := _VALUE.search(text):
            column = int(found.group(1))
            name = self._names[column] if column < len(self._names) else str(column)
            detail = found.group(3).removeprefix("invalid value ")
            if "UTF8" in detail:
                return f"column {name!r} is not UTF-8"
            return f"{detail} in column {name!r} is not of type {found.group(2)}"
        return text.removeprefix("CSV parse error: ")

    def wrong_count(self, line: bytes, rows: int) -> str:
        if line.count(self._quote) % 2 and self._form.multi_line:
            return f"a quote is opened and not closed within {self._form.max_row_bytes} bytes (maxRowBytes)"
        if line.count(self._quote) % 2:
            return "a quote is opened and not closed in this line (multiLine=true allows line ends within quotes)"
        return super().wrong_count(line, rows) + (
            ", divided by a bare carriage return" if b"\r" in line.rstrip(b"\r\n") else ""
        )

    def _open(self, block: bytes, starts: Int64s, ends: Int64s) -> list[int]:
        quotes = np.flatnonzero(np.frombuffer(block, np.uint8) == self._quote[0])
        within = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts)
        return np.flatnonzero(within % 2).tolist()

    def _other_zone(self, error: Exception) -> bool:
        """Switch a time column that an error names to a type with a zone or without; return whether there is one."""
        found = _ZONE.search(str(error))
        if found is None or int(found.group(1)) >= len(self._names):
            return False
        name = self._names[int(found.group(1))]
        dtype = self._types.get(name)
        if dtype is None or not pa.types.is_timestamp(dtype):
            return False
        self._types[name] = pa.timestamp(dtype.unit, None if dtype.tz else "UTC")
        return True


def _written_otherwise(text: str, name: str, dtype: pa.DataType) -> str:
    return (
        f"'{text}' in column {name!r} is not written as its {dtype} is, and would be another row's key; with the "
        "option `schema` the column is what "
        "that says"
    )


def _closed_field(quote: bytes, sep: bytes) -> bytes:
    inside = b"%b(?:[^%b]|%b%b)*%b(?:[^%b%b][^%b]*)?" % (quote, quote, quote, quote, quote, quote, sep, sep)
    return b"(?:%b|[^%b%b][^%b]*|)" % (inside, quote, sep, sep)


def _read_small(source: pa.BufferReader, **options: Any) -> pa.Table:
    import pyarrow.csv as csv

    with csv.open_csv(source, **options) as reader:
        return reader.read_all()
