"""``df.writeStream.format("upstream")``: the newest row per key as a Delta table, one commit a batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ..conf.errors import OptionError, SchemaError
from ..conf.process_identity import driver_process
from ..conf.units import now_us
from ..core.rows.system_column import SYSTEM, SYSTEM_TYPE
from .commit.batch_identity import RowNumberOffset
from .commit.last_commit import version_remembered, writer_id
from .commit.lease import TableLease
from .commit.metrics_table import check_metrics, offer_metrics
from .commit.sink_table import SinkCommit
from .figures.summary import CommitSummary, last_summary
from .frames import parse_rows, unframed
from .merge.bucket import merger_of
from .merge.engines import Engine
from .merge.outputs import Outputs, write_outputs
from .merge.task import TableWriter, TaskResult
from .spec import steps
from .spec.layout import Layout
from .spec.options import LATE, SinkTarget, parse_sink_options
from .spec.steps import CommitStep
from .table.contents import check_free
from .table.files import DataFiles
from .table.log_entry import check_writable, may_put_entries
from .table.mapped_table import change_schema, check_place, with_table_columns
from .table.table import (
    Snapshot,
    advise,
    check_allowed,
    load_table,
    marks_allowed,
    marks_from_the_start,
    take_snapshot,
    transaction_version,
)
from .table.tombstones import check_retention, forget_below, tombstone_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LatestStreamWriter:
    """Return the writer for a query's next batch. Spark calls this before each batch and before each commit.

    The schema has the system column or not; if an option describes the rows of frames, it is the frames' schema. The
    complete output mode (`overwrite`) is an OptionError. It is a TableError if another query holds the table's lease.
    """
    if overwrite:
        raise OptionError(
            "the output mode is complete", expected="append", hint='write with .outputMode("append"), or leave it out'
        )
    framed, options = parse_rows(options)
    target = parse_sink_options(options)
    writer = writer_for(target, framed or schema, framed=framed is not None)
    with target.folder.guarded():
        lease = TableLease(target.folder)
        lease.hold(writer_id(target), driver_process(), target.options.lease_us, now_us())
    return writer


def writer_for(target: SinkTarget, schema: StructType, *, framed: bool = False) -> LatestStreamWriter:
    """Return the writer of a batch for a target that has a checkpoint or an application."""
    with target.folder.guarded():
        layout, table = _open(target, schema)
        if table is not None and change_schema(target, layout, table):
            table = load_table(target)
        columns = layout.arrow_schema()
        files = DataFiles(target, layout.file_schema())
        snapshot = Snapshot.empty() if table is None else take_snapshot(table, files, target)
        forget = _forget_below(target, layout, columns, table) if snapshot.tombstones.paths else None
        entries = may_put_entries(target, table)
        _check_durability(target, entries=entries)
        marks = _marks(target, layout, table, snapshot)
        engine = Engine(target, layout, files, entries=entries, marks=marks)
        merger = merger_of(layout, files, tombstone_files(target, layout, columns), forget, engine)
        last = _last_summary(target, table) if LATE in target.dead_letter_rows else None
        outputs = Outputs(target, layout, columns, {} if last is None else last.low_watermarks)
        known = (lambda _: None) if table is None else functools.partial(transaction_version, target, table)
        base = RowNumberOffset.of(target, writer_id(target), known).base
        steps.reached(CommitStep.READ)
        writer = TableWriter(target, layout, files, merger, outputs)
        return LatestStreamWriter(writer, snapshot, framed=framed, base=base)


def check_sink(options: Mapping[str, str], schema: StructType) -> Layout:
    """Raise before the query starts the errors that :func:`stream_writer` would raise in the first batch.

    The checkpoint location may still be unknown. Only here is a wrong metrics table an error: later, metrics never end
    the query. The layout returned spells the key and the time as the schema does.
    """
    target = parse_sink_options(options, started=False)
    with target.folder.guarded():
        layout = _open(target, schema)[0]
        check_metrics(target)
        return layout


def _open(target: SinkTarget, schema: StructType) -> tuple[Layout, DeltaTable | None]:
    _check_system_column(schema)
    layout = Layout.of(target.options, schema)
    check_retention(target.options.tombstone_retention, layout)
    table = load_table(target)
    if table is None:
        if layout.ids is not None:
            check_place(target)
        check_free(target.folder)
    if table is not None:
        merging = target.options.schema_evolution == "add"
        layout = with_table_columns(layout, table) if merging else layout
        layout.check(table, target.location, merging=merging)
        check_writable(target, table, replaces=layout.history.count is not None)
        layout = layout.numbered_in(table)
    Outputs(target, layout, layout.arrow_schema()).check()
    return layout, table


def _check_durability(target: SinkTarget, *, entries: bool) -> None:
    """Refuse durability=power if delta-rs commits: it shows a log entry before the disk has it."""
    if target.is_durable and target.is_local and not entries:
        raise OptionError(
            f"durability=power, and the table at {target.location} has features under which only delta-rs writes its "
            "log",
            hint="leave the option durability out, or drop the features from Spark (ALTER TABLE … DROP FEATURE)",
        )


def _marks(target: SinkTarget, layout: Layout, table: DeltaTable | None, snapshot: Snapshot) -> bool:
    """Return True if the table has, or will have, deletion vectors. If they would pay off, log this advice once."""
    if table is None:
        return marks_from_the_start(target.options.engine, target.options.expected_keys, layout.buckets)
    meta = table.metadata()
    if target.options.engine == "vectors":
        check_allowed(meta.configuration, target.location)
    elif target.options.engine == "auto":
        advise(str(meta.id), target.location, meta.configuration, lambda: snapshot.largest_bucket)
    return marks_allowed(meta.configuration)


def _forget_below(target: SinkTarget, layout: Layout, columns: pa.Schema, table: DeltaTable | None) -> int | None:
    """Return the time below which tombstones may be removed, as this query last committed."""
    last = _last_summary(target, table)
    if last is None or layout.time is None:
        return None
    return forget_below(last.low_watermark, target.options.tombstone_retention, columns.field(layout.time).type)


def _last_summary(target: SinkTarget, table: DeltaTable | None) -> CommitSummary | None:
    return None if table is None else last_summary(table, writer_id(target), near=version_remembered(target))


class LatestStreamWriter(DataSourceStreamArrowWriter):
    """The sink's writer of a batch: tasks merge rows into their buckets, and the driver commits all of them at once.

    Guarantee: exactly once. The table has the newest row per key of all committed batches, whatever their order,
    repeats and process deaths. The commit fails if others have changed the touched buckets since `seen`. `base` is
    added to the numbers of rows.
    """

    def __init__(self, writer: TableWriter, seen: Snapshot, *, framed: bool = False, base: int = 0) -> None:
        self._writer = writer
        self._seen = seen
        self._framed = framed
        self._base = base

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Merge a task's rows and stage the files (in a task)."""
        return self._writer.run(unframed(iterator) if self._framed else iterator, self._seen, self._base)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Commit the batch (beside the driver)."""
        target = self._writer.target
        with target.folder.guarded():
            summary = SinkCommit(self._writer).commit(_results(messages), batchId)
            # Whether it was a repeat or not: the process may have died between the two.
            if summary is None or summary.late or summary.conflicts or summary.no_text:  # else it has named no files
                write_outputs(self._writer.outputs, load_table(target), writer_id(target), version_remembered(target))
            steps.reached(CommitStep.PUT_OUT)
            offer_metrics(target)
            steps.reached(CommitStep.MEASURED)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Remove what this attempt staged (beside the driver)."""
        del batchId
        with self._writer.target.folder.guarded():
            SinkCommit(self._writer).discard(_results(messages))


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message for message in messages if isinstance(message, TaskResult)]


def _check_system_column(schema: StructType) -> None:
    if SYSTEM not in schema.fieldNames():
        return
    present = getattr(schema[SYSTEM].dataType, "fieldNames", list)()
    missing = [field.name for field in SYSTEM_TYPE if field.name not in present]
    if missing:
        raise SchemaError(
            f"the column {SYSTEM} lacks {', '.join(missing)}",
            expected="the system column as the source made it",
            hint=f"keep {SYSTEM} unchanged through the query, or drop it: then arrival and progress are not recorded",
        )
