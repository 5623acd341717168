"""What a task does with the rows of a query's result: merge them into a table's buckets, and stage the files."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..merge.task import TaskResult, run_task
from ..spec import steps
from ..spec.steps import Step
from .result_table import ResultTable, table_writer

if TYPE_CHECKING:
    from ...delta_format.column_mapping import Ids
    from ..table.table import Snapshot

__all__ = ["SeenTable", "Staged", "stage", "staged_in"]


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


def stage(table: ResultTable, seen: SeenTable, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Merge rows into a table's buckets, and return what its commit needs. On an error nothing is left behind.

    Parameters
    ----------
    table
        The table.
    seen
        As :meth:`~upstream.sink.results.result_tables.ResultTables.look` has returned it for this batch.
    batches
        The table's columns, and the system column ``_upstream``. Of each key at most one row or tombstone comes in a
        batch. Rows of one bucket (:func:`upstream.core.rows.buckets.bucket_of` of the key) best come in one task: what
        comes in several is merged once more beside the driver.

    Raises
    ------
    MalformedRowError
        A row has no key.
    TableError
        A file of the table is gone, or cannot be written.
    """
    writer = table_writer(table, seen.ids)
    with writer.target.folder.guarded():
        result = run_task(batches, writer.layout, writer.files.schema, writer.merger, seen.snapshot, writer.outputs)
        # Here, since a task may run on another machine than the commit.
        writer.target.folder.sync(file.path for file in result.staged)
        steps.reached(Step.HANDED_OVER)
    return pickle.dumps(Staged(table.query_id, table.name, seen.ids, result), pickle.HIGHEST_PROTOCOL)


def staged_in(results: Sequence[bytes]) -> list[Staged]:
    """Return what tasks have staged, from what :func:`stage` returned."""
    return [pickle.loads(result) for result in results]  # noqa: S301 our own tasks wrote it
