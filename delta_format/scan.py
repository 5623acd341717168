"""Delta tables, opened by path or scanned by Polars, whatever their protocol."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import OptionError, TableError
from ..conf.locations import absolute_location
from ..storage.folder import TableFolder
from .column_mapping import MODE, is_mapped, kinds_in, physical_name, physical_number
from .deletion_vectors import read_vector
from .latest_table import ROW_KEY_PROPERTY
from .log import LiveFiles, LogReplay, check_log, has_early_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl
    from deltalake import DeltaTable
    from pyarrow.parquet import FileMetaData, ParquetFile


_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def open_parquet(where: str | BinaryIO, filesystem: Any = None, *, memory_map: bool = False) -> ParquetFile:
    """Open a Parquet file with INT96 times as microseconds: Arrow's nanoseconds silently wrap after the year 2262."""
    import pyarrow.parquet as pq

    if isinstance(where, str) and filesystem is None and not stat.S_ISREG(os.stat(where).st_mode):
        raise OSError(f"{where} is not a regular file")  # a pipe would be waited for
    return pq.ParquetFile(where, filesystem=filesystem, memory_map=memory_map, coerce_int96_timestamp_unit="us")


def rows_at(file: ParquetFile, positions: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows at increasing positions, reading only their row groups."""
    sizes = np.array([file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)], np.int64)
    ends = np.cumsum(sizes)
    group = np.searchsorted(ends, positions, side="right")
    chosen = np.unique(group)
    before = np.cumsum(sizes[chosen]) - sizes[chosen]
    within = positions - (ends - sizes)[group] + before[np.searchsorted(chosen, group)]
    rows = file.read_row_groups(chosen.tolist(), columns=list(columns), use_threads=False)
    return rows.take(pa.array(within))


def has_old_calendar(footer: FileMetaData) -> bool:
    """Return whether Spark wrote a file's dates and times in its calendar before version 3, with other early days."""
    return any(name in (footer.metadata or {}) for name in _OLD_CALENDAR)


Json = Any
Alive = npt.NDArray[np.bool_]
_BATCH = 1 << 17
_NUMBER = b"PARQUET:field_id"
_CHAR = re.compile(r"char\((\d+)\)", re.IGNORECASE)
# From here on, both calendars and all time zones count alike.
_SAME_FROM = {"date32[day]": -141_427, "timestamp[us]": -2_208_988_800_000_000}  # 1582-10-15, 1900-01-01


def read_rows(
    table: DeltaTable,
    columns: Sequence[str] | None = None,
    size: int | None = None,
    files: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Yield a loaded table's live rows in batches of at most `size`, from `files` (see :class:`LiveFiles`) or all."""
    whole = pa.schema(table.schema().to_arrow())
    fields = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    wanted = whole if columns is None else pa.schema([whole.field(name) for name in columns])
    metadata = table.metadata()
    divided = metadata.partition_columns
    folder, live = _folder_of(table), LiveFiles.of(table)
    values = {name: live.partition(name) for name in wanted.names if name in divided}
    read = [fields[name] for name in wanted.names if name not in divided]
    by_number = metadata.configuration.get(MODE, "none").lower() == "id"
    alive_in = _alive_rows(table, folder)
    for at in range(len(live.paths)) if files is None else files:
        path = live.paths[at]
        where, filesystem = folder.place(path)
        with open_parquet(where, filesystem) as file:
            is_old = has_old_calendar(file.metadata)
            alive = alive_in(path, file.metadata.num_rows)
            found = _matched(read, list(file.schema_arrow), by_number=by_number)
            start = 0
            for batch in file.iter_batches(size or _BATCH, columns=[physical.name for physical, _ in found.values()]):
                of_table = [
                    pa.repeat(pa.scalar(values[field.name][at], field.type), len(batch))
                    if field.name in values
                    else _as_declared(
                        batch.column(found[field.name][0].name), found[field.name][1], fields[field.name], field
                    )
                    if field.name in found
                    else pa.nulls(len(batch), field.type)
                    for field in wanted
                ]
                if is_old:
                    _check_calendar(table, path, of_table)
                # Polars counts the rows of a frame by its columns.
                rows = pa.table(of_table or [pa.nulls(len(batch))], schema=wanted if of_table else _NO_COLUMN)
                yield rows if alive is None else rows.filter(pa.array(alive[start : start + len(batch)]))
                start += len(batch)


_NO_COLUMN = pa.schema([("", pa.null())])


def _as_declared(column: pa.Array, kind: pa.DataType, described: Json, field: pa.Field) -> pa.Array:
    """Return a file's column in the table's type, CHAR padded as Spark reads it."""
    width = _CHAR.fullmatch(described.get("metadata", {}).get(_CHAR_PROPERTY, ""))
    made = column.view(kind).cast(field.type)
    return made if width is None else pc.utf8_rpad(made, int(width[1]))


_CHAR_PROPERTY = "__CHAR_VARCHAR_TYPE_STRING"


def _check_calendar(table: DeltaTable, path: str, columns: Sequence[pa.Array]) -> None:
    """Refuse early times of a file in the calendar before Spark 3, whose days are others."""
    if any(map(_has_early, columns)):
        raise TableError(
            f"the file {path} of the table at {table.table_uri} has dates before 1582-10-15, or times before 1900, in "
            "the calendar of Spark before version 3",
            expected="such times in the Gregorian calendar",
            hint="rewrite the table with Spark: it reads them right, and writes the new calendar by default",
        )


def _has_early(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_struct(kind):
        return any(map(_has_early, column.flatten()))
    if pa.types.is_list(kind):
        return _has_early(column.flatten())
    if pa.types.is_map(kind):
        return _has_early(column.keys) or _has_early(column.items)
    bound = _SAME_FROM.get(str(kind).replace(", tz=UTC", ""))
    if bound is None:
        return False
    least = pc.min(column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
    return least is not None and least < bound


def _folder_of(table: DeltaTable) -> TableFolder:
    uri = urlsplit(table.table_uri)
    storage = table._storage_options or {}  # pyright: ignore[reportPrivateUsage]
    return TableFolder(unquote(uri.path) if uri.scheme == "file" else table.table_uri.rstrip("/"), storage)


def _alive_rows(table: DeltaTable, folder: TableFolder) -> Callable[[str, int], Alive | None]:
    """Return a function from a file's path and row count to the mask of its live rows; None if all are alive."""
    features = set(table.protocol().reader_features or ())
    if "deletionVectors" not in features:
        return lambda *_: None
    if "vacuumProtocolCheck" in features:  # delta-rs (1.6) does not read rows under it
        log = LogReplay(folder)
        log.follow(table.version())
        vectors = log.vectors()
        return lambda path, rows: ~read_vector(folder, vectors[path], rows) if path in vectors else None
    kept = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    places = {unquote(urlsplit(uri).path): at for at, uri in enumerate(kept.column("filepath").to_pylist())}
    root = unquote(urlsplit(table.table_uri).path).rstrip("/")

    def alive(path: str, rows: int) -> Alive | None:
        at = places.get(TableFolder(root).place(path)[0])
        if at is None:
            return None
        told = kept.column("selection_vector")[at].values.to_numpy(zero_copy_only=False)
        return np.concatenate([told, np.ones(rows - len(told), dtype=bool)])

    return alive


def _matched(
    fields: Sequence[Json], physical: Sequence[pa.Field], *, by_number: bool
) -> dict[str, tuple[pa.Field, pa.DataType]]:
    """Return the file's field for each of the table's that it has, and its type with the table's names."""
    held = {_identity(field, by_number): field for field in physical}
    found: dict[str, tuple[pa.Field, pa.DataType]] = {}
    for field in fields:
        one = held.get(physical_number(field) if by_number else physical_name(field))
        if one is not None:
            found[field["name"]] = one, _renamed(one.type, field["type"], by_number=by_number)
    return found


def _identity(field: pa.Field, by_number: bool) -> str | int | None:
    if not by_number:
        return field.name
    number = (field.metadata or {}).get(_NUMBER)
    return None if number is None else int(number)


def _renamed(kind: pa.DataType, described: Json, *, by_number: bool) -> pa.DataType:
    """Return a file's type with the names of the table's fields; a field that left the table gets none of them."""
    if pa.types.is_struct(kind):
        matched = _matched(described["fields"], list(kind), by_number=by_number)
        names = {field.name: (name, inner) for name, (field, inner) in matched.items()}
        gone = [(f"\0{field.name}", field.type) for field in kind]
        return pa.struct([names.get(field.name, other) for field, other in zip(kind, gone, strict=True)])
    if pa.types.is_list(kind):
        return pa.list_(_renamed(kind.value_type, described["elementType"], by_number=by_number))
    if pa.types.is_map(kind):
        key = _renamed(kind.key_type, described["keyType"], by_number=by_number)
        return pa.map_(key, _renamed(kind.item_type, described["valueType"], by_number=by_number))
    return kind


_VARIANTS = {"variantType", "variantType-preview"}  # without such a column they demand nothing
_READ = _VARIANTS | {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}


def check_readable(table: DeltaTable) -> None:
    """Refuse a table that this package would misread; the error names the feature or the column."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    unknown = sorted(features - _READ)
    if protocol.min_reader_version > 3:
        unknown.append(f"version {protocol.min_reader_version} of the reader's protocol")
    if {"deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"} <= features:
        unknown.append("deletionVectors with v2Checkpoint and vacuumProtocolCheck together")
    if unknown:
        raise TableError(
            f"the table at {table.table_uri} needs a reader with the features {', '.join(unknown)}",
            expected=f"only the reader features {', '.join(sorted(_READ - _VARIANTS))}",
            hint="drop these from Spark (ALTER TABLE … DROP FEATURE …), or write the rows to another table",
        )
    fields = json.loads(table.schema().to_json())["fields"]
    variants = [field["name"] for field in fields if "variant" in kinds_in(field["type"])]
    if variants:
        raise TableError(
            f"the table at {table.table_uri} has columns of type VARIANT: {', '.join(variants)}",
            expected="columns of types that Arrow has",
            hint="write the rows to another table with the columns as text: to_json(…)",
        )


_OF_POLARS = {"deletionVectors", "timestampNtz"}


def scan_table(table: DeltaTable) -> pl.LazyFrame:
    """Return a lazy frame of a table's rows.

    Polars (2.1) refuses column mapping, harmless features, and absolute paths. It shows deleted rows of files whose
    paths have a percent sign, and moves Spark's times beyond the year 2262 to that year. Such a table is read file by
    file, with only the columns needed.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    check_readable(table)
    _check_files(table)
    features = set(table.protocol().reader_features or ())
    mapped = is_mapped(table.metadata().configuration)
    schema = json.loads(table.schema().to_json())
    if not mapped and features <= _OF_POLARS and _suits_polars(table, schema) and has_early_times(table, schema):
        return pl.scan_delta(table)

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in read_rows(table, columns, size):
            frame = pl.DataFrame(batch)
            frame = frame if most is None else frame.head(most)
            most = None if most is None else most - len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if most == 0:
                return

    empty = pa.schema(table.schema().to_arrow()).empty_table()
    return register_io_source(rows, schema=pl.DataFrame(empty).schema)


def _check_files(table: DeltaTable) -> None:
    """Raise a TableError for a data file on a disk that is cut, which Polars panics at, or that is a pipe or device."""
    folder = _folder_of(table)
    if not folder.is_local:
        return
    live = LiveFiles.of(table)
    for path, size in zip(live.paths, live.sizes, strict=True):
        where = folder.place(path)[0]
        with contextlib.suppress(FileNotFoundError):  # which the reader reports
            found = os.stat(where)
            if not stat.S_ISREG(found.st_mode) or found.st_size < size:
                what = f"has {found.st_size} bytes" if stat.S_ISREG(found.st_mode) else "is not a regular file"
                raise TableError(
                    f"the file {where} cannot be read: it {what}",
                    expected=f"the {size} bytes that the table's log has",
                    hint="restore it from a copy, or fill a table at another path from the input",
                )


def _suits_polars(table: DeltaTable, schema: Json) -> bool:
    """Return whether Polars reads the paths, partitions, and padded columns of a table as they are meant."""
    divided = table.metadata().partition_columns
    for field in schema["fields"]:
        if field["name"] in divided and field["type"] == "binary":
            return False
        if _CHAR.fullmatch(field["metadata"].get(_CHAR_PROPERTY, "")):
            return False
    return not any("%" in path or ":" in path or path.startswith("/") for path in LiveFiles.of(table).paths)


@contextlib.contextmanager
def reading(table: DeltaTable) -> Generator[None]:
    """Raise a TableError if a file of a table is gone or damaged."""
    import polars as pl
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (OSError, DeltaError, pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TableError(
            f"the table at {table.table_uri} cannot be read: {_folder_of(table).masked(error).strip().splitlines()[0]}",
            expected="the files of its last version, unchanged",
            hint="restore the file from a copy, or go back to a version without it (RESTORE in Spark)",
        ) from error


_OWN = "_upstream_"


def scan_columns(table: DeltaTable, columns: Sequence[str] | None) -> pl.LazyFrame:
    """Return some columns of the rows, to be read when needed; all but UpStream's own if none are named."""
    found = scan_table(table)
    return found.select(_named(table, found.collect_schema().names(), columns))


def read_columns(table: DeltaTable, columns: Sequence[str] | None) -> pa.Table:
    """Return some columns of the rows in the table's types; all but UpStream's own if none are named."""
    check_readable(table)
    _check_files(table)
    whole = pa.schema(table.schema().to_arrow())
    wanted = _named(table, whole.names, columns)
    empty = pa.schema([whole.field(name) for name in wanted]).empty_table()
    with reading(table):
        return pa.concat_tables([empty, *read_rows(table, wanted)])


def users_columns(table: DeltaTable, names: Sequence[str]) -> list[str]:
    """Return the columns that are not UpStream's own."""
    added = table.metadata().configuration.get(ROW_KEY_PROPERTY)
    return [name for name in names if not name.startswith(_OWN) and name != added]


def _named(table: DeltaTable, names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    wanted = users_columns(table, names) if columns is None else list(columns)
    absent = [name for name in wanted if name not in names]
    if absent:
        raise OptionError(f"the table has no column {', '.join(absent)}", expected="columns among " + ", ".join(names))
    return wanted


_MOST_SAID = 300  # the kernel may show the whole log


def open_table(path: str, storage: Mapping[str, str] | None = None) -> DeltaTable:
    """Open the table in a folder; raise a TableError if there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    folder = TableFolder(absolute_location(path), storage or {})
    check_log(folder)
    try:
        return DeltaTable(folder.location, storage_options=dict(folder.storage) or None)
    except TableNotFoundError:
        raise TableError(
            f"there is no table in {path}", expected="the path of a table", hint="check the path"
        ) from None
    except (DeltaError, OSError) as error:
        said = folder.masked(error).strip().splitlines()[0][:_MOST_SAID]
        raise TableError(
            f"the table in {path} cannot be opened: {said}",
            expected="a Delta table with a whole log",
            hint="restore the broken file of _delta_log from a copy",
        ) from error
