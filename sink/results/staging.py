"""What a task does with the rows of a query's result: merge them into a table's buckets, and stage the files."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...delta_format.latest_table import SEQ
from ..merge.pending import Int64s, Mask, Pending
from ..merge.task import TaskResult, run_task
from ..spec import steps
from ..spec.steps import Step
from ..table.files import conform
from .result_table import ResultTable, table_writer

if TYPE_CHECKING:
    from ...delta_format.column_mapping import Ids
    from ..table.table import Snapshot

__all__ = ["ResultRows", "SeenTable", "Staged", "stage", "staged_in"]


@dataclasses.dataclass(frozen=True)
class ResultRows:
    """Rows and tombstones for one table, and what else is known of each.

    They are many and most are small, so they come without the system column, which costs more than all else to build
    and to take apart.

    Attributes
    ----------
    rows : pyarrow.Table
        The table's columns. Of each key at most one row or tombstone comes in a batch of one shard.
    seq : int64 array of length rows
        Their numbers: of two rows with one key, the one with the greater number is newer.
    arrival_us, first_arrival_us : int64 arrays of length rows
        As in the system column.
    deleted : bool array of length rows
        Which are tombstones.
    """

    rows: pa.Table
    seq: Int64s
    arrival_us: Int64s
    first_arrival_us: Int64s
    deleted: Mask

    def pending(self, schema: pa.Schema) -> Pending:
        """Return them in the schema of the table's data files."""
        rows = conform(self.rows.append_column(SEQ, pa.array(self.seq)), schema)
        covered = np.ones(rows.num_rows, dtype=np.int64)
        deleted = self.deleted if self.deleted.any() else None
        return Pending(rows, self.arrival_us, self.first_arrival_us, covered, deleted)


@dataclasses.dataclass(frozen=True)
class SeenTable:
    """A table as the driver has seen it before a batch.

    Attributes
    ----------
    snapshot : Snapshot
        Its files; none if the batch replaces all rows.
    ids : mapping or None
        The numbers of its columns; None for a table without column mapping.
    """

    snapshot: Snapshot
    ids: Ids | None = None


@dataclasses.dataclass(frozen=True)
class Staged:
    """The rows of one task for one table, staged.

    Attributes
    ----------
    query_id, name : int, str
        Of the table.
    ids : mapping or None
        The numbers of the columns in the staged files.
    result : TaskResult
    """

    query_id: int
    name: str
    ids: Ids | None
    result: TaskResult


def stage(table: ResultTable, seen: SeenTable, came: ResultRows) -> bytes:
    """Merge rows into a table's buckets, and return what its commit needs. On an error nothing is left behind.

    Parameters
    ----------
    table
        The table.
    seen
        As :meth:`~upstream.sink.results.result_tables.ResultTables.look` has returned it for this batch.
    came
        The rows. Those of one bucket (:func:`upstream.core.rows.buckets.bucket_of` of the key) best come in one task:
        what comes in several is merged once more beside the driver.

    Raises
    ------
    MalformedRowError
        A row has no key.
    TableError
        A file of the table is gone, or cannot be written.
    """
    writer = table_writer(table, seen.ids)
    with writer.target.folder.guarded():
        schema = writer.files.schema
        result = run_task([came.pending(schema)], writer.layout, schema, writer.merger, seen.snapshot, writer.outputs)
        # Here, since a task may run on another machine than the commit.
        writer.target.folder.sync(file.path for file in result.staged)
        steps.reached(Step.HANDED_OVER)
    return pickle.dumps(Staged(table.query_id, table.name, seen.ids, result), pickle.HIGHEST_PROTOCOL)


def staged_in(results: Sequence[bytes]) -> list[Staged]:
    """Return what tasks have staged, from what :func:`stage` returned."""
    return [pickle.loads(result) for result in results]  # noqa: S301 our own tasks wrote it
