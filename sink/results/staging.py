"""The task's part of a result table: merge rows into buckets, and stage the files."""

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
    """Rows and tombstones for one table, at most one of each key in a batch of one shard.

    They come without the system column: in many small tables it would cost more than all else.
    """

    rows: pa.Table
    seq: Int64s  # of two rows with one key, the one with the greater number is newer
    arrival_us: Int64s  # as in the system column
    first_arrival_us: Int64s  # as in the system column
    deleted: Mask  # True for tombstones

    def pending(self, schema: pa.Schema) -> Pending:
        """Return the rows in the schema of the table's data files."""
        rows = conform(self.rows.append_column(SEQ, pa.array(self.seq)), schema)
        covered = np.ones(rows.num_rows, dtype=np.int64)
        deleted = self.deleted if self.deleted.any() else None
        return Pending(rows, self.arrival_us, self.first_arrival_us, covered, deleted)


@dataclasses.dataclass(frozen=True)
class SeenTable:
    """The driver's view of a table before a batch."""

    snapshot: Snapshot  # without files if the batch replaces all rows
    ids: Ids | None = None  # column mapping ids; None for a table without column mapping


@dataclasses.dataclass(frozen=True)
class Staged:
    """The staged files of one task for one table."""

    query_id: int
    name: str
    ids: Ids | None  # column mapping ids in the staged files
    result: TaskResult


def stage(table: ResultTable, seen: SeenTable, came: ResultRows) -> bytes:
    """Merge rows into a table's buckets, and return the pickled input of its commit; on an error no file is left.

    The rows of one bucket best come in one task: otherwise the driver merges the bucket once more.
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
    """Return the staged files in the results of :func:`stage`."""
    return [pickle.loads(result) for result in results]  # noqa: S301 our own tasks wrote it
