"""The table's data files, written under unique names and invisible until a commit names them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import uuid
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import columns_of, parts_of
from ...conf.errors import TableError
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...delta_format.deletion_vectors import DeletionVector, read_vector
from ...delta_format.latest_table import BUCKET
from ...delta_format.scan import has_old_calendar, open_parquet, rows_at
from ...storage.folder import TableFolder
from ..spec import steps
from ..spec.options import SinkTarget
from ..spec.steps import CommitStep
from .file_statistics import file_stats

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile


Span = tuple[int, int, str]
"""The least and the greatest value, and in what they are counted."""

_WHOLE, _DAYS, _MICROS = "numbers", "days", "microseconds"


def apart(files: Sequence[ParquetFile], rows: pa.Table, key: Sequence[str]) -> bool:
    """Return True if no row has a key that a row of the files has.

    That is so if, in each row group, all values of some key column are above the rows' or all below. Only integers
    and times are compared: their bounds in a footer are exact. Other programs write other units and calendars,
    so bounds count only in the rows' own units.
    """
    columns = zip(key, columns_at(rows, key), strict=True)
    spans = {_path(name, rows): span for name, column in columns if (span := _span(column)) is not None}
    return bool(spans) and not any(groups_near(file, spans) for file in files)


def _span(column: pa.ChunkedArray) -> Span | None:
    terms = _terms(column.type)
    if terms is None:
        return None
    found = pc.min_max(column.cast(pa.int32() if terms == _DAYS else pa.int64()))
    return found["min"].as_py(), found["max"].as_py(), terms


def _terms(kind: pa.DataType) -> str | None:
    """Return the unit of a column's values; None if the column is not compared."""
    if pa.types.is_date32(kind):
        return _DAYS
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _MICROS
    return _WHOLE if pa.types.is_signed_integer(kind) else None


def _terms_in(column: Any) -> str | None:
    """Return the unit of a column's bounds in a footer; None for a unit that rows never have."""
    if column.physical_type not in ("INT32", "INT64"):
        return None
    logical = column.logical_type
    if logical.type == "NONE" or (logical.type == "INT" and json.loads(logical.to_json())["isSigned"]):
        return _WHOLE
    if logical.type == "DATE":
        return _DAYS
    return (
        _MICROS if logical.type == "TIMESTAMP" and json.loads(logical.to_json())["timeUnit"] == "microseconds" else None
    )


def _path(name: str, rows: pa.Table) -> str:
    """Return a column's name as in footers, where a name with a dot looks like a field."""
    return name if name in rows.column_names else ".".join(parts_of(name))


def groups_near(file: ParquetFile, spans: Mapping[str, Span]) -> list[int]:
    """Return the row groups that may have a row within all spans, by the bounds in the footer."""
    footer: FileMetaData = file.metadata
    places: dict[int, Span] = {}
    for path, span in spans.items():
        found = [at for at in range(footer.num_columns) if footer.schema.column(at).path == path]
        # Not there, or two that look alike; or in other terms than the rows.
        if len(found) != 1 or _terms_in(footer.schema.column(found[0])) != span[2]:
            continue
        if span[2] == _WHOLE or not has_old_calendar(footer):
            places[found[0]] = span
    groups = range(footer.num_row_groups)
    return [at for at in groups if not any(_outside(footer.row_group(at).column(one), places[one]) for one in places)]


def _outside(column: Any, span: Span) -> bool:
    bounds = column.statistics
    if bounds is None or not bounds.has_min_max:
        return False
    return bounds.min_raw > span[1] or span[0] > bounds.max_raw


# A value comes at least so many times, on average.
_FEW = 4

ROW_GROUP = 1 << 16
"""Rows of a row group: so few that the bounds of a sorted key rule nearly all of a file out, so many that it is no
larger nor read more slowly.
"""


@dataclasses.dataclass(frozen=True)
class StagedFile:
    """A data file that is written and awaits its commit."""

    bucket: int | None  # None in a table without partitions
    path: str  # relative to the table
    size: int
    rows: int
    fresh: int  # the number of rows, the last ones, of this batch
    stats: str  # for Delta's log
    arrival_us: bytes | None = None  # the fresh rows' arrivals, int64, if only arrival decides which is newer


class DataFiles:
    """The table's data files, or others in a folder below it; `folder` ends with a slash unless it is empty."""

    def __init__(self, target: SinkTarget, schema: pa.Schema, folder: str = "") -> None:
        self._target = target
        self._table = target.folder
        self.schema = schema
        self._folder = folder

    def in_folder(self, folder: str) -> DataFiles:
        return DataFiles(self._target, self.schema, folder)

    def stage(
        self, rows: pa.Table, bucket: int | None, fresh: int, arrival_us: bytes | None = None, *, to_last: bool = False
    ) -> StagedFile:
        """Write one file of a bucket, with this batch's rows last; no reader sees it before its commit."""
        steps.reached(CommitStep.DECIDED)
        path, size = self.write_rows(rows, "" if bucket is None else f"{BUCKET}={bucket}/", to_last=to_last)
        steps.reached(CommitStep.STAGED)
        return StagedFile(bucket, path, size, rows.num_rows, fresh, file_stats(rows), arrival_us)

    def write_rows(self, rows: pa.Table, partition: str = "", *, to_last: bool = False) -> tuple[str, int]:
        """Write one file of a partition (``name=value/``, or none); return its path and its size.

        With `to_last`, it is written once and read for long: text of few values gets dictionaries, which readers
        decode in half the time.
        """
        import pyarrow.parquet as pq

        path = f"{self._folder}{partition}part-{uuid.uuid4()}.parquet"
        try:
            with self._table.opened_to_write(path) as sink:
                # Dictionaries cost more time than all else here, and zstd finds most of what they would save. By this
                # schema and not the rows': it has the columns' numbers, where there are any.
                dictionaries: Any = _of_few_values(rows) if to_last else False
                with pq.ParquetWriter(sink, self.schema, compression="zstd", use_dictionary=dictionaries) as writer:
                    writer.write_table(rows, row_group_size=ROW_GROUP)
                size = sink.tell()
        except OSError as error:
            self.remove([path])
            raise self._unwritable(path, error) from error
        except BaseException:
            self.remove([path])
            raise
        return path, size

    def open(self, paths: Sequence[str], dead: Sequence[Mask | DeletionVector | None] = ()) -> BucketReader:
        """Open a reader of the live rows of some files; raise a FileNotFoundError if one is gone."""
        opened: list[ParquetFile] = []
        masks: list[Mask | None] = []
        for path, gone in zip(paths, dead or [None] * len(paths), strict=True):
            where, filesystem = self._table.place(path)
            with _reading(path, self._table):
                opened.append(open_parquet(where, filesystem))
            is_vector = isinstance(gone, DeletionVector)
            masks.append(self.dead(gone, opened[-1].metadata.num_rows) if is_vector else gone)
        return BucketReader(opened, self.schema, masks, paths, self._table)

    def read_rows(
        self,
        paths: Sequence[str],
        dead: Sequence[Mask | DeletionVector | None] = (),
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return the live rows of some files, with all or some columns."""
        reader = self.open(paths, dead)
        try:
            return reader.read(self.schema.names if columns is None else columns)
        finally:
            reader.close()

    def dead(self, vector: DeletionVector | None, rows: int) -> Mask:
        """Return the mask of a file's dead rows; raise a FileNotFoundError if the vector's file is gone."""
        return np.zeros(rows, dtype=np.bool_) if vector is None else read_vector(self._table, vector, rows)

    def near(self, path: str, key: Sequence[str], values: pa.Table) -> tuple[Int64s, pa.Table]:
        """Return places and keys of rows, dead included, that may have the key in `values`, by row groups' bounds."""
        where, filesystem = self._table.place(path)
        names = columns_of(key, self.schema.names)
        spans = {
            name if name in self.schema.names else ".".join(parts_of(name)): span
            for name, column in zip(key, values.columns, strict=True)
            if (span := _span(column)) is not None
        }
        with _reading(path, self._table), open_parquet(where, filesystem) as file:
            sizes = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            groups = groups_near(file, spans)
            rows = file.read_row_groups(groups, columns=names, use_threads=False)
        at = [np.arange(starts[group], starts[group + 1]) for group in groups]
        schema = pa.schema([self.schema.field(name) for name in dict.fromkeys(names)])
        return np.concatenate([np.empty(0, np.int64), *at]).astype(np.int64), conform(rows, schema)

    def rows_at(self, path: str, positions: Int64s) -> pa.Table:
        """Return some rows of a file, by increasing positions; other row groups are not read."""
        where, filesystem = self._table.place(path)
        with open_parquet(where, filesystem) as file:
            return conform(rows_at(file, positions, self.schema.names), self.schema)

    def count(self, path: str) -> int:
        """Return a file's number of rows, by its footer."""
        import pyarrow.parquet as pq

        where, filesystem = self._table.place(path)
        with _reading(path, self._table):
            return int(pq.read_metadata(where, filesystem=filesystem).num_rows)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes; raise a FileNotFoundError if it is gone."""
        where, filesystem = self._table.place(path)
        if filesystem is None:
            return os.path.getsize(where)
        found = filesystem.get_file_info(where)
        if found.size is None:
            raise FileNotFoundError(path)
        return int(found.size)

    def write(self, path: str, content: bytes) -> None:
        try:
            self._table.write(path, content)
        except OSError as error:
            self.remove([path])
            raise self._unwritable(path, error) from error

    def read(self, path: str) -> bytes:
        """Return the bytes that :meth:`write` wrote; raise a FileNotFoundError if they are gone."""
        return self._table.read(path)

    def _unwritable(self, path: str, error: OSError) -> TableError:
        return TableError(
            f"the file {path} cannot be written to the table at {self._table.location}: {self._table.masked(error)}",
            expected="room on the disk, and a folder that every task may write to",
            hint="make room or correct the permission, and restart the query: it repeats the batch. Nothing has "
            "changed",
        )

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files that no commit names; one that is gone, or cannot be removed, is left to VACUUM."""
        self._table.remove(paths)


@contextlib.contextmanager
def _reading(path: str, table: TableFolder) -> Generator[None]:
    """Raise a TableError that names the file if Arrow cannot read it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise TableError(
            f"the file {path} of the table at {table.location} cannot be read: {table.masked(error)}",
            expected="the Parquet file of a commit, unchanged",
            hint="restore it from a copy, or fill a table at another path from the input, with a new "
            "checkpointLocation. Nothing has changed: readers still see the same rows",
        ) from error


class BucketReader:
    """A reader of a bucket's files by column: first those that decide, the rest only if the bucket changes."""

    def __init__(
        self,
        files: Sequence[ParquetFile],
        schema: pa.Schema,
        dead: Sequence[Mask | None],
        paths: Sequence[str],
        table: TableFolder,
    ) -> None:
        self._files = files
        self.schema = schema
        self._live = [None if mask is None else pa.array(~mask) for mask in dead]
        self._paths = paths
        self._table = table

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the live rows, in the schema's types and the given order."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        # A name with a dot in it is also taken for a path into a struct, so more may come than was asked for; conform
        # drops it.
        tables: list[pa.Table] = []
        for path, file, live in zip(self._paths, self._files, self._live, strict=True):
            with _reading(path, self._table):
                read = file.read(columns=list(columns), use_threads=False)
            whole = conform(read, schema)
            tables.append(whole if live is None else whole.filter(live))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    @property
    def rows(self) -> int:
        """Return the files' number of rows, dead ones included."""
        return sum(file.metadata.num_rows for file in self._files)

    def apart_from(self, rows: pa.Table, key: Sequence[str]) -> bool:
        """Return True if the files surely have none of the rows' keys; see :func:`.key_ranges.apart`."""
        return apart(self._files, rows, key)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _of_few_values(rows: pa.Table) -> list[str]:
    """Return the text columns with few values in the first row group: dictionaries of many are large and slow."""
    first = rows.slice(0, ROW_GROUP)
    return [
        field.name
        for field in first.schema
        if pa.types.is_string(field.type)
        and _FEW * pc.count_distinct(first.column(field.name)).as_py() <= first.num_rows
    ]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns in the order and types of a schema.

    Absent columns are null, as in files from before a column was added. A value that does not fit raises an
    ArrowInvalid.
    """
    if table.schema == schema:
        return table
    return pa.table([_cast(table, field) for field in schema], schema=schema)


def _cast(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    place = table.schema.get_field_index(field.name)
    if place < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(place)
    return column if column.type == field.type else column.cast(field.type)
