"""The table of a continuous query's result, and the tasks' part: merge rows into buckets, stage the files."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ...conf.errors import MalformedRowError
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.key import NO_KEY, Key
from ...core.rows.text import rows_without_text
from ...delta_format.column_mapping import Ids
from ...delta_format.latest_table import ROW_KEY_PROPERTY, SEQ
from ..merge.batch_rows import BatchRows
from ..merge.bucket import merger_of
from ..merge.engines import Engine
from ..merge.outputs import Outputs
from ..merge.task import TableWriter, TaskResult
from ..spec.layout import Layout
from ..spec.options import SinkTarget, parse_sink_options
from ..table.files import BucketReader, DataFiles, StagedFile, conform
from ..table.tombstones import tombstone_files

if TYPE_CHECKING:
    from ...delta_format.deletion_vectors import DeletionVector
    from ..table.table import Snapshot


# A bucket with more rows need not be read whole: then its files' footers count.
_MOST_ROWS = 65_536
# In a process; a worker has several at most.
_MOST_BYTES = 64 << 20


class KeptFiles(DataFiles):
    """A table's data files, with a cache of the rows of small ones that this process wrote.

    To open and read a small Parquet file takes up to a third of a small merge. A file never changes and its
    name never recurs, so the cache is never stale.
    """

    def stage(
        self, rows: pa.Table, bucket: int | None, fresh: int, arrival_us: bytes | None = None, *, to_last: bool = False
    ) -> StagedFile:
        staged = super().stage(rows, bucket, fresh, arrival_us, to_last=to_last)
        if rows.num_rows <= _MOST_ROWS:
            _kept.put(staged.path, rows)
        return staged

    def open(self, paths: Sequence[str], dead: Sequence[Mask | DeletionVector | None] = ()) -> BucketReader:
        if paths and all(each is None for each in dead):
            found = [each for each in map(_kept.get, paths) if each is not None]
            if len(found) == len(paths) and sum(each.num_rows for each in found) <= _MOST_ROWS:
                return _KeptReader(pa.concat_tables(found), self.schema, paths)
        return super().open(paths, dead)


class _KeptReader(BucketReader):
    """A reader of a bucket's cached rows."""

    def __init__(self, whole: pa.Table, schema: pa.Schema, paths: Sequence[str]) -> None:
        self._whole = whole
        self._paths = paths
        self._files = ()
        self.schema = schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        return conform(self._whole.select(columns), pa.schema([self.schema.field(name) for name in columns]))

    @property
    def rows(self) -> int:
        return self._whole.num_rows

    def apart_from(self, rows: pa.Table, key: Sequence[str]) -> bool:
        """Return False, which promises nothing: a look at so few rows takes no time."""
        del rows, key
        return False


class _RowCache:
    """A least-recently-used cache of rows by file name."""

    def __init__(self) -> None:
        self._rows: dict[str, pa.Table] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, path: str, rows: pa.Table) -> None:
        rows = _owned(rows)
        with self._lock:
            self._rows[path] = rows
            self._bytes += rows.nbytes
            while self._bytes > _MOST_BYTES:
                self._bytes -= self._rows.pop(next(iter(self._rows))).nbytes

    def get(self, path: str) -> pa.Table | None:
        with self._lock:
            rows = self._rows.pop(path, None)
            if rows is not None:
                self._rows[path] = rows
            return rows


_kept = _RowCache()


def _owned(rows: pa.Table) -> pa.Table:
    """Return rows in buffers of their own: a slice of a batch would keep the whole batch in memory."""
    if any(column.num_chunks < 2 for column in rows.columns):
        rows = rows.take(pa.array(np.arange(rows.num_rows)))
    return rows.combine_chunks()


# Tables that a process keeps at hand.
_TABLES = 4096
# A table has a version for each batch, and there may be a thousand tables.
_VERSIONS = 1_000


@dataclasses.dataclass(frozen=True)
class ResultTable:
    """The table of a query's result."""

    query_id: int  # the query's *incarnation*: grows whenever it restarts; a new one replaces rows and columns
    name: str  # the query's
    location: str
    # without the sink's own columns
    schema: pa.Schema = dataclasses.field(hash=False)  # to hash it takes longer than all else together
    key: Key = NO_KEY  # may be empty if all rows are kept
    # replace a key's row by a later one, and delete by tombstones; or only add rows
    history: Literal["latest", "all"] = "latest"
    buckets: int = 1
    # more options of the sink, such as ``("durability", "power")``
    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)  # with secrets of a store
    overwrite: bool = False  # let the first batch replace the rows of a table of another checkpoint's query
    row_key: str | None = None  # the column with the key as text, which the query itself does not have

    def properties(self) -> dict[str, str]:
        """Return the properties that the table records."""
        return layout_of(self).properties() | ({} if self.row_key is None else {ROW_KEY_PROPERTY: self.row_key})


@functools.lru_cache(_TABLES)
def target_of(table: ResultTable) -> SinkTarget:
    """Return a table's target, with its options."""
    given = {
        "retentionVersions": str(_VERSIONS),
        **dict(table.options),
        "path": table.location,
        "history": table.history,
    }
    given |= {"key": table.key.text} if table.key else {}
    return parse_sink_options({**given, "buckets": str(table.buckets)}, started=False)


def target_at(location: str, options: Sequence[tuple[str, str]]) -> SinkTarget:
    """Return the target of a table, from its location alone."""
    return parse_sink_options({**dict(options), "path": location, "history": "all"}, started=False)


@functools.lru_cache(_TABLES)
def layout_of(table: ResultTable) -> Layout:
    """Return a table's layout, as for a new table; raise a SchemaError if no table can hold its columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return Layout.of(target_of(table).options, from_arrow_schema(table.schema))


def writer_of(table: ResultTable, ids: Ids | None) -> TableWriter:
    """Return the writer of a table with these column mapping ids; None without column mapping."""
    return _writer(table, None if ids is None else tuple(sorted(ids.items())))


@functools.lru_cache(_TABLES)
def _writer(table: ResultTable, ids: tuple[tuple[tuple[str, ...], int], ...] | None) -> TableWriter:
    target = target_of(table)
    layout = dataclasses.replace(layout_of(table), ids=None if ids is None else dict(ids))
    files = KeptFiles(target, layout.file_schema())
    merger = merger_of(
        layout, files, tombstone_files(target, layout, files.schema), None, Engine(target, layout, files)
    )
    return TableWriter(target, layout, files, merger, Outputs(target, layout, layout.arrow_schema()))


@dataclasses.dataclass(frozen=True)
class ResultRows:
    """Rows and tombstones for one table, at most one of each key of a shard's batch, without the system column."""

    rows: pa.Table
    seq: Int64s  # of two rows with one key, the one with the greater number is newer
    arrival_us: Int64s  # as in the system column
    first_arrival_us: Int64s  # as in the system column
    deleted: Mask  # True for tombstones

    def pending(self, schema: pa.Schema) -> BatchRows:
        """Return the rows in the schema of the table's data files."""
        rows = conform(self.rows.append_column(SEQ, pa.array(self.seq)), schema)
        covered = np.ones(rows.num_rows, dtype=np.int64)
        deleted = self.deleted if self.deleted.any() else None
        return BatchRows(rows, self.arrival_us, self.first_arrival_us, covered, deleted)


@dataclasses.dataclass(frozen=True)
class SeenTable:
    """The driver's view of a table before a batch."""

    snapshot: Snapshot  # without files if the batch replaces all rows
    ids: Ids | None = None  # column mapping ids; None for a table without column mapping


class StagedFiles(NamedTuple):
    """The staged files of one task for one table."""

    ids: Ids | None  # column mapping ids in the staged files
    result: TaskResult


def stage(table: ResultTable, seen: SeenTable, came: ResultRows) -> bytes:
    """Merge rows into a table's buckets, and return the pickled input of its commit; on an error no file is left.

    The rows of one bucket best come in one task: otherwise the driver merges the bucket once more.
    """
    if wrong := np.count_nonzero(rows_without_text(came.rows)):
        raise MalformedRowError(
            f"{wrong} of {came.rows.num_rows} rows of '{table.name}' have text that is not UTF-8",
            expected="text in UTF-8, since readers such as Polars and deltalake reject a table with other text",
            hint="correct the text in the source, or leave its column out",
        )
    writer = writer_of(table, seen.ids)
    result = writer.run([came.pending(writer.files.schema)], seen.snapshot)
    return pickle.dumps(StagedFiles(seen.ids, result), pickle.HIGHEST_PROTOCOL)


def staged_in(results: Sequence[bytes]) -> list[StagedFiles]:
    """Return the staged files in the results of :func:`stage`."""
    return [pickle.loads(result) for result in results]  # noqa: S301 our own tasks wrote it
