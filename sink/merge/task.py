"""One task's part of a batch: merge its rows into their buckets, and stage the files."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ...core.rows.exact_integers import Int64s
from ..spec import steps
from ..spec.steps import CommitStep
from .batch_rows import MOST_HASHES, OlderKeys
from .bucket import BucketMerge
from .outputs import SideRows, SideRowWriter
from .staleness import Arrivals
from .task_rows import RowBuffer

if TYPE_CHECKING:
    from ..spec.layout import Layout
    from ..spec.options import SinkTarget
    from ..table.files import DataFiles, StagedFile
    from ..table.table import Snapshot
    from .batch_rows import BatchRows
    from .bucket import BucketMerger
    from .outputs import Outputs


@dataclasses.dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The result of a task, for the commit."""

    merges: tuple[BucketMerge, ...]  # of every bucket that the task read
    rows: int
    updates: int
    arrivals: Arrivals  # first arrivals of the delivered rows
    bounds: Mapping[str, Any]  # watermarks by input partition
    side_rows: SideRows = SideRows()  # noqa: RUF009 it is frozen
    highest: int = -1  # the highest row number; -1 if no row has one

    @property
    def staged(self) -> list[StagedFile]:
        return [file for merge in self.merges for file in merge.staged()]


@dataclasses.dataclass(frozen=True)
class TableWriter:
    """The means by which a process writes to a table."""

    target: SinkTarget
    layout: Layout
    files: DataFiles
    merger: BucketMerger
    outputs: Outputs

    def run(self, batches: Iterable[pa.RecordBatch | BatchRows], seen: Snapshot, base: int = 0) -> TaskResult:
        """Merge a task's rows into their buckets, and put the files on the disk; on an error no file is left.

        Pending rows are numbered from the base on; to Spark's rows `base` is added. Memory: one run of
        :class:`~upstream.sink.merge.task_rows.RowBuffer`, or one bucket with its new rows.
        """
        with self.target.folder.guarded():
            result = self._merge(batches, seen, base)
            # Here, since a task may run on another machine than the commit.
            self.target.folder.sync(file.path for file in result.staged)
            steps.reached(CommitStep.HANDED_OVER)
            return result

    def _merge(self, batches: Iterable[pa.RecordBatch | BatchRows], seen: Snapshot, base: int) -> TaskResult:
        merges: list[BucketMerge] = []
        firsts: list[Int64s] = []
        hashes, key = MOST_HASHES, self.layout.key if self.layout.keep.count == 1 else ()
        side_rows = SideRowWriter(self.outputs)
        with contextlib.closing(RowBuffer(self.layout, self.files.schema, side_rows, base)) as gathering:
            try:
                for batch in batches:
                    gathering.add(batch)
                for bucket, rows in gathering.by_bucket():
                    turn = seen.has_turn(bucket, self.layout.buckets)
                    verdict, merge = self.merger.merge(bucket, seen.of_bucket(bucket), rows, turn=turn)
                    merges.append(merge)  # before anything can fail, so that its files are removed
                    older = OlderKeys.of(rows.rows, key, verdict.won, hashes)
                    hashes -= len(older.hashes or b"") // 8
                    merges[-1] = dataclasses.replace(merge, older=older)
                    if rows.first_arrival_us is not None:
                        firsts.append(rows.first_arrival_us[verdict.delivered])
                    for lost in verdict.lost:
                        side_rows.lost(lost)
                put = side_rows.staged()
            except BaseException:
                self.merger.remove(merges)
                side_rows.discard()
                raise
        self.merger.done(seen)
        arrivals = Arrivals.of(np.concatenate(firsts) if firsts else None)
        incoming = gathering.incoming
        counts = incoming.rows, incoming.updates, arrivals, incoming.bounds
        return TaskResult(tuple(merges), *counts, put, incoming.highest)
