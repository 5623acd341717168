"""The rows of a task: checked, separated from punctuation, coalesced in bounded memory, spilled beyond it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import spark_name
from ...conf.errors import EnvironmentMissingError, MalformedRowError
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at, null_rows
from ...core.rows.exact_integers import Mask
from ...core.rows.system_column import SYSTEM, deleted_mask, punctuation_mask
from ...core.rows.text import rows_without_text
from ...core.watermark.bounds import beginning
from ...delta_format.latest_table import NOTHING_YET, SEQ
from ..spec.layout import Layout
from ..table.files import conform
from .batch_rows import UNKNOWN, BatchRows, as_pending, concat_pending, int64s, seq_of
from .newest_rows import newest_rows, unheard

if TYPE_CHECKING:
    from .outputs import SideRowWriter


def bound_values(times: pa.ChunkedArray) -> list[Any]:
    """Return punctuation's times as JSON values that compare as they do: ISO text of one width, or numbers.

    The value is None for null or infinity, the end of an input partition. It is :data:`NOTHING_YET` for one
    that has rows but no watermark.
    """
    least = beginning(times.type)
    return [
        NOTHING_YET if begun else value
        for begun, value in zip(pc.equal(times, least).to_pylist(), _values(times), strict=True)
    ]


def _values(times: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(times.type):
        ending = "Z" if times.type.tz else ""
        instants = np.datetime_as_string(times.to_numpy().astype("datetime64[us]"), unit="us")
        return [None if text == "NaT" else f"{text}{ending}" for text in instants.tolist()]
    if pa.types.is_date(times.type):
        return [None if day is None else day.isoformat() for day in times.to_pylist()]
    # Beyond all numbers lies the end of the feed.
    return [
        None if value is None or (isinstance(value, float) and not np.isfinite(value)) else value
        for value in times.to_pylist()
    ]


def later_bound(one: Any, other: Any) -> Any:
    """Return the later of two watermarks of one input partition; None, its end, is later than all."""
    if one is None or other is None:
        return None
    if NOTHING_YET in (one, other):
        return other if one == NOTHING_YET else one
    return max(one, other)


_MOST_SEQ = 1 << 62
# Rows, and their size, taken before they are coalesced. Bounds a task's memory by this much beyond one row per key.
_COALESCE_AT = 2_000_000
_COALESCE_BYTES = 256 << 20


class TaskRows:
    """A task's rows without punctuation, coalesced to the newest per key.

    `base` is added to the numbers of rows, and `highest` is the highest with it; -1 if no row has one. `bounds`
    has the latest watermark by input partition: None if it ended, NOTHING_YET if it was only announced. `kept`
    is the number of rows, and of bytes, after the last coalescing. `lost` receives rows that lose in a
    conflict.
    """

    def __init__(
        self, layout: Layout, schema: pa.Schema, side_rows: SideRowWriter | None = None, base: int = 0
    ) -> None:
        self._layout = layout
        self._base = base
        self.highest = -1
        self._side_rows = side_rows
        self.lost = unheard if side_rows is None else side_rows.lost
        self._schema = schema
        self._parts: list[BatchRows] = []
        self._held = self._bytes = 0
        self.kept = (0, 0)
        self.rows = 0
        self.updates = 0
        self.bounds: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add one batch from Spark; raise a MalformedRowError if a row has no usable key or time."""
        table = pa.Table.from_batches([batch])
        system = table.column(SYSTEM) if SYSTEM in table.column_names else None
        if system is not None:
            marks = punctuation_mask(table)
            if pc.any(marks).as_py():
                self._punctuate(table.filter(marks))
                table = table.filter(pc.invert(marks))
                system = table.column(SYSTEM)
        if table.num_rows == 0:
            return
        self.rows += table.num_rows
        if self._side_rows is not None and self._side_rows.looks_at_text:
            table = self._text_only(table, self._side_rows)
            system = None if system is None else table.column(SYSTEM)
        part = self._part(table, system)
        _check_rows(part, self._layout)
        if system is not None and self._side_rows is not None:
            self._side_rows.look(part.rows, system, part.deleted)
        self._keep(part)

    def take(self, part: BatchRows) -> None:
        """Add rows that are numbered from the base on, without punctuation."""
        if part.rows.num_rows == 0:
            return
        self.rows += part.rows.num_rows
        self._reach(int(seq_of(part.rows).max()))
        _check_rows(part, self._layout)
        self._keep(part)

    def drain(self) -> BatchRows:
        """Return the newest row of each key since the last call, and release them."""
        newest = self._newest()
        self._hold([])
        return newest

    def _newest(self) -> BatchRows:
        if not self._parts:
            return BatchRows(self._schema.empty_table(), None, None, np.empty(0, dtype=np.int64))
        return newest_rows(concat_pending(self._parts), self._layout, self.lost)

    def _keep(self, part: BatchRows) -> None:
        self.updates += int(part.covered.sum())
        self._parts.append(part)
        self._held += part.rows.num_rows
        self._bytes += part.rows.nbytes
        if self._held >= self.kept[0] + _COALESCE_AT or self._bytes >= self.kept[1] + _COALESCE_BYTES:
            self._hold([self._newest()])

    def _hold(self, parts: list[BatchRows]) -> None:
        self._parts = parts
        self._held = sum(part.rows.num_rows for part in parts)
        self._bytes = sum(part.rows.nbytes for part in parts)
        self.kept = (self._held, self._bytes)

    def _text_only(self, table: pa.Table, side_rows: SideRowWriter) -> pa.Table:
        """Return the rows whose text is UTF-8; write the others to the side table, before any other check."""
        names = [name for name in self._schema.names if name in table.column_names]
        wrong = rows_without_text(table.select(names))
        if not wrong.any():
            return table
        others = table.filter(pa.array(wrong))
        system = others.column(SYSTEM) if SYSTEM in others.column_names else None
        part = self._part(others, system)
        side_rows.no_text(part.rows, system, part.deleted)
        return table.filter(pa.array(~wrong))

    def _part(self, table: pa.Table, system: pa.ChunkedArray | None) -> BatchRows:
        if system is None:
            return dataclasses.replace(as_pending(conform(table, self._schema)), deleted=self._deleted(table))
        fields = dict(zip((field.name for field in system.type), system.flatten(), strict=True))
        arrival, first = fields["arrival"], fields["first_arrival"]
        return BatchRows(
            conform(table.append_column(SEQ, self._numbered(fields["seq"])), self._schema),
            int64s(arrival, UNKNOWN),
            int64s(pc.coalesce(first, arrival) if first.null_count else first, UNKNOWN),
            int64s(fields["covered"], 1),
            self._deleted(table),
        )

    def _numbered(self, seq: pa.ChunkedArray) -> pa.ChunkedArray:
        highest = pc.max(seq).as_py()
        if highest is not None:
            self._reach(highest + self._base)
        return pc.add(seq, self._base) if self._base else seq

    def _reach(self, highest: int) -> None:
        self.highest = max(self.highest, highest)
        if self.highest >= _MOST_SEQ:
            raise MalformedRowError(
                f"a row is numbered {highest - self._base} by {SYSTEM}.seq, after {self._base} that the table has had "
                "of other checkpoints",
                expected=f"together less than {_MOST_SEQ}",
                hint=f"keep {SYSTEM} as the source made it; or write to a new table",
            )

    def _deleted(self, table: pa.Table) -> Mask | None:
        """Return which rows are tombstones, by the system column or the user's column; None if none is."""
        marks: list[pa.ChunkedArray | pa.Array] = [deleted_mask(table)] if SYSTEM in table.column_names else []
        if self._layout.delete_when is not None:
            marks.append(pc.fill_null(table.column(self._layout.delete_when), False))
        if not any(pc.any(mark).as_py() for mark in marks):
            return None
        return np.logical_or.reduce([mark.to_numpy(zero_copy_only=False) for mark in marks])

    def _punctuate(self, table: pa.Table) -> None:
        if self._layout.progress_time is None:
            return
        # With its key set, punctuation speaks for that key alone.
        whole = np.ones(table.num_rows, dtype=np.bool_)
        for column in columns_at(table, self._layout.key):
            whole &= column.is_null().to_numpy()
        table = table.filter(pa.array(whole))
        times = table.column(self._layout.progress_time)
        sources = pc.fill_null(pc.struct_field(table.column(SYSTEM), ["source"]), "").to_pylist()
        for source, bound in zip(sources, bound_values(times), strict=True):
            self.bounds[source] = later_bound(self.bounds.get(source, bound), bound)


def _check_rows(part: BatchRows, layout: Layout) -> None:
    rows = part.rows
    if part.deleted is not None and layout.history.count is None:
        raise MalformedRowError(
            f"{int(part.deleted.sum())} of {rows.num_rows} rows delete their keys, and the table keeps all rows",
            expected="no deletions with history=all: nothing ever leaves the table",
            hint="filter such rows out before writing, or write a table with history=latest",
        )
    if layout.partial:
        _check_parts(part, layout)
    for name, column in zip(layout.key, columns_at(rows, layout.key), strict=True):
        if nulls := int(np.count_nonzero(null_rows(column))):
            raise MalformedRowError(
                f"{nulls} of {rows.num_rows} rows have a null in the key column {name!r}",
                expected="a key in every row; only punctuation rows have none",
                hint="filter such rows out before writing, for example "
                f'.where("{spark_name(name, rows.column_names)} IS NOT NULL OR `{SYSTEM}`.punctuation")',
            )
    role = "sequence" if layout.sequence else "time"
    for name, column in zip(layout.order, columns_at(rows, layout.order), strict=True):
        unusable = np.count_nonzero(null_rows(column))
        unusable = unusable or (pa.types.is_floating(column.type) and pc.sum(pc.is_nan(column)).as_py())
        if unusable:
            raise MalformedRowError(
                f"{unusable} of {rows.num_rows} rows have no usable {role} in the column {name!r}",
                expected=f"a {role} in every row",
                hint="filter such rows out before writing, for example "
                f'.where("{spark_name(name, rows.column_names)} IS NOT NULL")',
            )


def _check_parts(part: BatchRows, layout: Layout) -> None:
    """Refuse rows that a partial update cannot be made of: incomplete, or with deletions in another order."""
    if len(part.covered) and int(part.covered.max()) > 1:
        raise MalformedRowError(
            f"a row represents {int(part.covered.max())} updates of its key, and the table has partial updates",
            expected="every row: the updates that were left out may have values that this one lacks",
            hint="read without coalesce, and write without a queue before; or leave out nullMeans and columnGroups",
        )
    if part.deleted is not None and (others := layout.groups_of_other_order):
        raise MalformedRowError(
            f"{int(part.deleted.sum())} rows delete their keys, and columnGroups orders columns by "
            f"{', '.join(others)}, of another type than {layout.order.text}, which orders the deletions",
            expected="orders of one type: a deletion takes away what is older in each group",
            hint=f"cast these columns to the type of {layout.order.text}, or filter deletions out before writing",
        )
    for group in layout.partial.groups:
        column = part.rows.column(group.by)
        if pa.types.is_floating(column.type) and (wrong := pc.sum(pc.is_nan(column)).as_py()):
            raise MalformedRowError(
                f"{wrong} of {len(part.covered)} rows have NaN in the column {group.by!r}, which orders a group",
                expected="a number, or null in a row that changes nothing in the group",
                hint="replace NaN by null before writing, for example with nullif",
            )


# A task's rows, coalesced to one per key, that stay in memory.
_MOST_ROWS = 1_000_000
_MOST_BYTES = 128 << 20
# Of a run: rows that are read at once, so that no batch of text comes near the 2 GB that one array holds.
_BATCH_ROWS = 65_536

_ARRIVAL, _FIRST_ARRIVAL = "_upstream_arrival", "_upstream_first_arrival"
_COVERED, _DELETED = "_upstream_covered", "_upstream_deleted"


class RowBuffer:
    """A task's rows, gathered and returned as the newest per key of each bucket. Close it, whatever happens.

    A run is an Arrow file with the newest row per key of some rows, bucket after bucket. At the end each bucket
    is read from all runs, so a task holds no more than a run or one bucket. Most batches never write a run.
    """

    def __init__(
        self, layout: Layout, schema: pa.Schema, side_rows: SideRowWriter | None = None, base: int = 0
    ) -> None:
        self.incoming = TaskRows(layout, schema, side_rows, base)
        self._layout = layout
        self._runs: list[_SpillRun] = []
        self._folder: str | None = None

    def close(self) -> None:
        for run in self._runs:
            run.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def runs(self) -> int:
        return len(self._runs)

    def add(self, batch: pa.RecordBatch | BatchRows) -> None:
        """Add one batch from Spark, or pending rows; a full local disk is an EnvironmentMissingError."""
        if isinstance(batch, BatchRows):
            self.incoming.take(batch)
        else:
            self.incoming.add(batch)
        rows, size = self.incoming.kept
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            self._spill()

    def by_bucket(self) -> Iterator[tuple[int, BatchRows]]:
        """Yield the newest row per key of each bucket that has any, in the order of the buckets."""
        if not self._runs:
            yield from _by_bucket(self.incoming.drain(), self._layout)
            return
        self._spill()
        for bucket in sorted({bucket for run in self._runs for bucket in run.batches}):
            parts = [run.read(bucket) for run in self._runs if bucket in run.batches]
            yield bucket, newest_rows(concat_pending(parts), self._layout, self.incoming.lost)

    def _spill(self) -> None:
        rows = self.incoming.drain()
        if rows.rows.num_rows == 0:
            return
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="upstream-", dir=_local_folder())
        try:
            self._runs.append(_SpillRun(Path(self._folder, f"{len(self._runs)}.arrow"), rows, self._layout))
        except OSError as error:
            raise EnvironmentMissingError(
                f"rows of a task cannot be spilled to {self._folder}: {error}",
                expected=f"room on the worker's local disk: a task keeps at most {_MOST_ROWS:,} keys in memory",
                hint="free some room, or name a disk that has it in Spark's spark.local.dir; nothing was written to "
                "the table",
            ) from error


class _SpillRun:
    """Some rows, one per key, in a file; the reader stays open."""

    def __init__(self, path: Path, rows: BatchRows, layout: Layout) -> None:
        self.batches: dict[int, range] = {}
        written = 0
        schema = _to_table(rows.slice(0, 0)).schema
        # What lies on the disk for seconds is compressed by what costs least.
        with pa.ipc.new_file(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for bucket, part in _by_bucket(rows, layout):
                batches = _to_table(part).to_batches(max_chunksize=_BATCH_ROWS)
                for batch in batches:
                    writer.write_batch(batch)
                self.batches[bucket] = range(written, written + len(batches))
                written += len(batches)
        self._file = pa.OSFile(str(path))
        self._reader = pa.ipc.open_file(self._file)

    def read(self, bucket: int) -> BatchRows:
        return _from_table(pa.Table.from_batches([self._reader.get_batch(number) for number in self.batches[bucket]]))

    def close(self) -> None:
        self._file.close()


def _by_bucket(newest: BatchRows, layout: Layout) -> Iterator[tuple[int, BatchRows]]:
    if newest.rows.num_rows == 0:
        return
    if not layout.key or layout.buckets == 1:
        yield 0, newest
        return
    buckets = bucket_of(columns_at(newest.rows, layout.key), layout.buckets)
    order = np.argsort(buckets, kind="stable")
    ordered, buckets = newest.take(order), buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(buckets)], strict=True):
        yield int(buckets[start]), ordered.slice(int(start), int(end))


def _to_table(rows: BatchRows) -> pa.Table:
    beside: Mapping[str, Any] = {
        _ARRIVAL: rows.arrival_us,
        _FIRST_ARRIVAL: rows.first_arrival_us,
        _COVERED: rows.covered,
        _DELETED: rows.deleted,
    }
    table = rows.rows
    for name, values in beside.items():
        if values is not None:
            table = table.append_column(name, pa.array(values))
    return table


def _from_table(table: pa.Table) -> BatchRows:
    beside = {name: table.column(name).to_numpy() for name in _BESIDE if name in table.column_names}
    return BatchRows(
        table.drop_columns(list(beside)),
        beside.get(_ARRIVAL),
        beside.get(_FIRST_ARRIVAL),
        beside[_COVERED],
        beside.get(_DELETED),
    )


_BESIDE = (_ARRIVAL, _FIRST_ARRIVAL, _COVERED, _DELETED)


def _local_folder() -> str | None:
    """Return Spark's local folder on this worker; None for the system's temporary folder."""
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            return folder
    return None
