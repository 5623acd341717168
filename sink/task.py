"""What one task does with its rows of a batch: merge them into their buckets' newest rows, and stage the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ..conf.errors import TableError
from ..frames.buckets import bucket_of
from .files import DataFiles, StagedFile
from .layout import SEQ, Layout
from .merge import Incoming, Pending, contest
from .staleness import Arrivals

if TYPE_CHECKING:
    from .table import Snapshot

__all__ = ["TaskResult", "merge_bucket", "run_task"]


@dataclasses.dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What a task hands to the commit.

    Attributes
    ----------
    staged : tuple of StagedFile
        At most one a bucket.
    base : mapping of int to tuple of str
        For every bucket that the task looked at, the table's files that it saw there.
    rows, updates, delivered, older : int
        As in :class:`~upstream.sink.summary.CommitSummary`.
    arrivals : Arrivals
        First arrivals of the delivered rows.
    bounds : mapping
        Per feed what its punctuation said.
    """

    staged: tuple[StagedFile, ...]
    base: Mapping[int, tuple[str, ...]]
    rows: int
    updates: int
    delivered: int
    older: int
    arrivals: Arrivals
    bounds: Mapping[str, Any]

    def paths(self) -> list[str]:
        """The staged files' paths."""
        return [file.path for file in self.staged]


def run_task(
    batches: Iterable[pa.RecordBatch], layout: Layout, files: DataFiles, schema: pa.Schema, seen: Snapshot
) -> TaskResult:
    """Merge a task's rows with the buckets that they fall in. On an error nothing staged is left behind.

    Parameters
    ----------
    batches
        As Spark gives them, with or without the system column.
    layout, files, schema
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
    staged: list[StagedFile] = []
    base: dict[int, tuple[str, ...]] = {}
    won: list[npt.NDArray[np.bool_]] = []
    firsts: list[npt.NDArray[np.int64]] = []
    try:
        for bucket, rows in _by_bucket(newest, layout):
            base[bucket] = seen.of_bucket(bucket)
            mask, written = merge_bucket(files, layout, bucket, base[bucket], rows)
            won.append(mask)
            if written is not None:
                staged.append(written)
            if rows.first_arrival_us is not None:
                firsts.append(rows.first_arrival_us[mask])
    except BaseException:
        files.remove(file.path for file in staged)
        raise
    delivered = sum(int(mask.sum()) for mask in won)
    arrivals = Arrivals.of(np.concatenate(firsts) if firsts else None)
    older = newest.rows.num_rows - delivered
    return TaskResult(tuple(staged), base, incoming.rows, incoming.updates, delivered, older, arrivals, incoming.bounds)


def merge_bucket(
    files: DataFiles, layout: Layout, bucket: int, paths: Sequence[str], new: Pending
) -> tuple[npt.NDArray[np.bool_], StagedFile | None]:
    """Write the bucket anew with the rows of `new` that are newer than the table's.

    Parameters
    ----------
    paths
        The bucket's files in the table.
    new
        One row for each key, all of this bucket.

    Returns
    -------
    won : bool array of length new rows
        Which of them are newer.
    staged : StagedFile or None
        None if none is: the bucket stays as it is.
    """
    deciding = list(layout.key)
    if layout.time is not None and layout.time not in deciding:
        deciding.append(layout.time)
    deciding.append(SEQ)
    names = new.rows.column_names
    try:
        reader = files.open(paths)
        base = reader.read(deciding)
        outcome = contest(base, new.rows.select(deciding), layout)
        if not outcome.won.any():
            reader.close()
            return outcome.won, None
        payload = [name for name in names if name not in deciding]
        for name, column in zip(payload, reader.read(payload).columns if payload else [], strict=True):
            base = base.append_column(name, column)
        reader.close()
    except FileNotFoundError as error:
        raise TableError(
            f"a data file of bucket {bucket} is gone: {error}",
            expected="the files that the table's log names",
            hint="restart the query if the table was replaced or vacuumed meanwhile; else restore the file",
        ) from error
    kept = base.select(names)
    if not outcome.stays.all():
        kept = kept.filter(pa.array(outcome.stays))
    fresh = new.rows if outcome.won.all() else new.rows.filter(pa.array(outcome.won))
    arrival = None if layout.time is not None or new.arrival_us is None else new.arrival_us[outcome.won].tobytes()
    rows = pa.concat_tables([kept, fresh.cast(kept.schema)]) if kept.num_rows else fresh
    return outcome.won, files.stage(rows, bucket, fresh.num_rows, arrival)


def _by_bucket(newest: Pending, layout: Layout) -> Iterable[tuple[int, Pending]]:
    if newest.rows.num_rows == 0:
        return
    buckets = bucket_of([newest.rows.column(name) for name in layout.key], layout.buckets)
    order = np.argsort(buckets, kind="stable")
    ordered, buckets = newest.take(order), buckets[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(buckets)], strict=True):
        yield int(buckets[start]), ordered.slice(int(start), int(end))
