"""What one task does with its rows of a batch: merge them into their buckets' newest rows, and stage the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ..frames.buckets import bucket_of
from .bucket import BucketMerge, BucketMerger
from .layout import Layout
from .merge import Incoming, Pending
from .staleness import Arrivals

if TYPE_CHECKING:
    from .files import StagedFile
    from .table import Snapshot

__all__ = ["TaskResult", "run_task"]


@dataclasses.dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What a task hands to the commit.

    Attributes
    ----------
    merges : tuple of BucketMerge
        Of every bucket that the task looked at.
    rows, updates, older : int
        As in :class:`~upstream.sink.summary.CommitSummary`.
    arrivals : Arrivals
        First arrivals of the delivered rows.
    bounds : mapping
        Per feed what its punctuation said.
    """

    merges: tuple[BucketMerge, ...]
    rows: int
    updates: int
    older: int
    arrivals: Arrivals
    bounds: Mapping[str, Any]

    @property
    def staged(self) -> list[StagedFile]:
        """The files that await the commit."""
        return [file for merge in self.merges for file in merge.staged()]


def run_task(
    batches: Iterable[pa.RecordBatch], layout: Layout, schema: pa.Schema, merger: BucketMerger, seen: Snapshot
) -> TaskResult:
    """Merge a task's rows with the buckets that they fall in. On an error nothing staged is left behind.

    Parameters
    ----------
    batches
        As Spark gives them, with or without the system column.
    layout, schema, merger
        Of the table.
    seen
        The table as it was when the batch began.

    Raises
    ------
    MalformedRowError
        A row has no key or no time.
    TableError
        A file of the table is gone.
    """
    incoming = Incoming(layout, schema)
    for batch in batches:
        incoming.add(batch)
    newest = incoming.newest()
    merges: list[BucketMerge] = []
    firsts: list[npt.NDArray[np.int64]] = []
    won = 0
    try:
        for bucket, rows in _by_bucket(newest, layout):
            verdict, merge = merger.merge(bucket, seen.of_bucket(bucket), rows)
            merges.append(merge)
            won += int(verdict.won.sum())
            if rows.first_arrival_us is not None:
                firsts.append(rows.first_arrival_us[verdict.delivered])
    except BaseException:
        merger.remove(merges)
        raise
    arrivals = Arrivals.of(np.concatenate(firsts) if firsts else None)
    older = newest.rows.num_rows - won
    return TaskResult(tuple(merges), incoming.rows, incoming.updates, older, arrivals, incoming.bounds)


def _by_bucket(newest: Pending, layout: Layout) -> Iterable[tuple[int, Pending]]:
    if newest.rows.num_rows == 0:
        return
    buckets = bucket_of([newest.rows.column(name) for name in layout.key], layout.buckets)
    order = np.argsort(buckets, kind="stable")
    ordered, buckets = newest.take(order), buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(buckets)], strict=True):
        yield int(buckets[start]), ordered.slice(int(start), int(end))
