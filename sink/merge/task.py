"""One task's part of a batch: merge its rows into their buckets, stage the files, and measure their staleness."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ...core.feedback.ages import Ages, Staleness
from ...core.rows.exact_integers import Int64s
from ..spec import steps
from ..spec.steps import CommitStep
from .batch_rows import MOST_HASHES, UNKNOWN, OlderKeys
from .bucket import BucketMerge
from .outputs import SideRows, SideRowWriter
from .task_rows import RowBuffer

if TYPE_CHECKING:
    from ..spec.layout import Layout
    from ..spec.options import SinkTarget
    from ..table.files import DataFiles, StagedFile
    from ..table.table import Snapshot
    from .batch_rows import BatchRows
    from .bucket import BucketMerger
    from .outputs import Outputs


# More distinct arrivals than this are grouped by rank, so that a message stays small; ranks are then right to 1 in this
# many.
_MOST = 4096


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """The distribution of applied rows' first arrivals, of bounded size, from which the commit computes ages.

    A row's *application staleness* is the time from the first arrival of the oldest update that it represents
    to the commit that shows it.
    """

    at_us: Int64s  # distinct arrivals, or means of neighbouring ones, increasing
    count: Int64s  # rows at each
    first_us: int  # the exact earliest arrival; meaningless without rows

    @classmethod
    def of(cls, arrival_us: Int64s | None) -> Arrivals:
        if arrival_us is None:
            arrival_us = np.empty(0, dtype=np.int64)
        at_us, count = np.unique(arrival_us[arrival_us != UNKNOWN], return_counts=True)
        return cls._bounded(at_us, count.astype(np.int64))

    @classmethod
    def together(cls, parts: Sequence[Arrivals]) -> Arrivals:
        if not parts:
            return cls.of(None)
        if len(parts) == 1:
            return parts[0]
        at_us, place = np.unique(np.concatenate([part.at_us for part in parts]), return_inverse=True)
        count = np.zeros(len(at_us), dtype=np.int64)
        np.add.at(count, place, np.concatenate([part.count for part in parts]))
        merged = cls._bounded(at_us, count)
        return dataclasses.replace(
            merged, first_us=min((part.first_us for part in parts if len(part.at_us)), default=0)
        )

    @classmethod
    def _bounded(cls, at_us: Int64s, count: Int64s) -> Arrivals:
        first = int(at_us[0]) if len(at_us) else 0
        if len(at_us) <= _MOST:
            return cls(at_us, count, first)
        rank = np.cumsum(count) - count
        starts = np.flatnonzero(np.diff(rank * _MOST // int(count.sum()), prepend=-1))
        grouped = np.add.reduceat(count, starts)
        offset = np.add.reduceat((at_us - first).astype(np.float64) * count, starts)
        return cls(first + np.round(offset / grouped).astype(np.int64), grouped, first)

    def staleness(self, committed_us: int) -> Staleness | None:
        """Return the rows' ages at the commit, 0 for one from the future (a clock was set back); None without rows."""
        rows = int(self.count.sum())
        if rows == 0:
            return None
        ages = np.maximum(committed_us - self.at_us[::-1], 0) / 1e6
        count = self.count[::-1]
        upto = np.cumsum(count)
        p50, p99 = (float(ages[np.searchsorted(upto, np.ceil(share * rows))]) for share in (0.5, 0.99))
        mean = float((ages * count).sum() / rows)
        return Staleness(mean, p50, p99, max(committed_us - self.first_us, 0) / 1e6)

    def ages(self, committed_us: int) -> Ages:
        """Return the rows' ages at the commit, to be added to those of other commits."""
        return Ages.of(committed_us - self.at_us, self.count)

    def area(self, committed_us: int, previous_us: int | None) -> tuple[float, float]:
        """Return bounds of the staleness over time that ends with this commit, in square seconds, summed over keys.

        A key whose update arrived at e, committed at t, adds the integral of x - e from max(e, p) to t. Here, p is the
        commit of its previous result, which the table does not record. It is not later than `previous_us`, so the
        integral from there is the least, and the whole ramp from e the most.
        """
        age = np.maximum(committed_us - self.at_us, 0) / 1e6
        before = np.zeros_like(age) if previous_us is None else np.maximum(previous_us - self.at_us, 0) / 1e6
        most = age**2 / 2
        least = most - np.minimum(before, age) ** 2 / 2
        return float((least * self.count).sum()), float((most * self.count).sum())


@dataclasses.dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The result of a task, for the commit."""

    merges: tuple[BucketMerge, ...]  # of every bucket that the task read
    rows: int
    updates: int
    arrivals: Arrivals  # first arrivals of the applied rows
    bounds: Mapping[str, Any]  # watermarks by input partition
    side_rows: SideRows = SideRows()  # noqa: RUF009 it is frozen
    highest: int = -1  # the highest row number; -1 if no row has one
    rows_s: float = dataclasses.field(default=0.0, compare=False)  # seconds in which it waited for rows
    merge_s: float = dataclasses.field(default=0.0, compare=False)  # the other seconds of the task

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
        waits: list[float] = []
        began = time.perf_counter()
        with self.target.folder.guarded():
            result = self._merge(_timed(batches, waits), seen, base)
            # Here, since a task may run on another machine than the commit.
            self.target.folder.sync(file.path for file in result.staged)
            steps.reached(CommitStep.HANDED_OVER)
        rows_s = sum(waits)
        return dataclasses.replace(result, rows_s=rows_s, merge_s=time.perf_counter() - began - rows_s)

    def _merge(self, batches: Iterable[pa.RecordBatch | BatchRows], seen: Snapshot, base: int) -> TaskResult:
        merges: list[BucketMerge] = []
        firsts: list[Int64s] = []
        hashes, key = MOST_HASHES, self.layout.key if self.layout.history.count == 1 else ()
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
                        firsts.append(rows.first_arrival_us[verdict.applied])
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


def _timed(batches: Iterable[pa.RecordBatch | BatchRows], waits: list[float]) -> Iterator[pa.RecordBatch | BatchRows]:
    """Yield the batches, and add the seconds of waiting for each one."""
    at = time.perf_counter()
    for batch in batches:
        waits.append(time.perf_counter() - at)
        yield batch
        at = time.perf_counter()
    waits.append(time.perf_counter() - at)
