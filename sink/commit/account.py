"""The merges of a batch together, and the summary that its commit records."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.feedback.offsets import journaled_counts
from ...delta_format.latest_table import NOTHING_YET, CommitChanges
from ..figures.summary import CommitSummary, look_at_queue
from ..maintenance.runner import last_maintained
from ..merge.batch_rows import OlderKeys, counted
from ..merge.bucket import BucketMerge, Tally
from ..merge.outputs import SideRows
from ..merge.staleness import Arrivals
from ..merge.task import TaskResult
from ..merge.task_rows import later_bound

if TYPE_CHECKING:
    from ...conf.units import StalenessTarget
    from ..spec.options import SinkTarget
    from ..table.files import StagedFile
    from ..table.table import Snapshot
    from .batch_identity import BatchIdentity


@dataclasses.dataclass(frozen=True)
class MergeResults:
    """The results of a batch's tasks, together."""

    merges: list[BucketMerge]  # of the buckets with any winning row
    strays: int  # number of buckets that came in several tasks
    side_rows: SideRows
    older: Mapping[int, Sequence[OlderKeys]]  # by bucket, for each task the keys of which it had older rows only

    @classmethod
    def of(cls, results: Sequence[TaskResult]) -> MergeResults:
        won = [merge for result in results for merge in result.merges if merge.won]
        older: dict[int, list[OlderKeys]] = {}
        for result in results:
            for merge in result.merges:
                older.setdefault(merge.bucket, []).append(merge.older)
        return cls(won, 0, SideRows.together([result.side_rows for result in results]), older)

    @property
    def rows(self) -> list[StagedFile]:
        return [merge.rows for merge in self.merges if merge.rows is not None]

    @property
    def tombstones(self) -> list[StagedFile]:
        return [merge.tombstones for merge in self.merges if merge.tombstones is not None]

    @property
    def deletions(self) -> list[StagedFile]:
        """Return the files of deletions, for followers of the table."""
        return [merge.deletions for merge in self.merges if merge.deletions is not None]

    def delivered(self, summary: CommitSummary, gone: Sequence[StagedFile] = ()) -> CommitChanges:
        """Return the commit's record for followers of the table; `gone` has the keys that a new beginning removes."""
        marks = summary.low_watermarks.values()
        return CommitChanges(
            summary.committed_at_us,
            {file.path: file.fresh for file in self.rows if file.fresh},
            {file.path: file.rows for file in [*self.deletions, *gone]},
            summary.low_watermark,
            bool(marks) and all(mark is None for mark in marks),
        )

    @property
    def tally(self) -> Tally:
        return functools.reduce(Tally.plus, (merge.tally for merge in self.merges), Tally())

    def keys_after(self, snapshot: Snapshot) -> int | None:
        """Return the table's number of rows after the commit; None if a foreign file has no row count."""
        gone = {path for merge in self.merges for path in merge.replaced}
        kept = snapshot.count(path for path in snapshot.rows if path not in gone)
        if kept is None:
            return None
        dead = sum(merge.replacement.newly_dead(snapshot.vectors) for merge in self.merges)
        return kept - dead + sum(file.rows for file in self.rows)


def summarise(
    identity: BatchIdentity,
    target: SinkTarget,
    results: Sequence[TaskResult],
    merged: MergeResults,
    snapshot: Snapshot,
    last: CommitSummary | None,
    clock_us: Callable[[], int],
    *,
    even_empty: bool = False,
) -> CommitSummary | None:
    """Return the summary of a batch; None if there is nothing to record, such as no rows unless `even_empty`.

    `last` is the summary of the query's commit before.
    """
    marks = dict(last.low_watermarks) if last else {}
    for result in results:
        for feed, bound in result.bounds.items():
            marks[feed] = later_bound(marks[feed], bound) if feed in marks else bound
    rows = sum(result.rows for result in results)
    if not even_empty and rows == 0 and ((last is not None and marks == last.low_watermarks) or not marks):
        return None
    updates = sum(result.updates for result in results)
    tally = merged.tally
    committed_us = clock_us()
    arrivals = Arrivals.together([result.arrivals for result in results])
    staleness = arrivals.staleness(committed_us)
    checkpoint = target.checkpoint_folder if target.checkpoint else None  # a batch has none
    waiting = look_at_queue(checkpoint, identity.number) if checkpoint else None
    open_marks = [bound for bound in marks.values() if bound is not None]
    oldest_us = None if waiting is None else waiting.oldest_us
    summary = CommitSummary(
        batch_id=identity.number,
        query_id=identity.writer,
        committed_at_us=committed_us,
        rows=rows,
        updates=updates,
        delivered=tally.delivered,
        superseded=updates - tally.delivered,
        older=counted(merged.older.values()),
        keys=merged.keys_after(snapshot),
        low_watermarks=dict(sorted(marks.items())),
        low_watermark=None if NOTHING_YET in open_marks else min(open_marks, default=None),
        staleness=staleness,
        stray_buckets=merged.strays,
        deleted=tally.deleted,
        absent=tally.absent,
        ages=None if staleness is None else arrivals.ages(committed_us),
        area=None if staleness is None else arrivals.area(committed_us, last.committed_at_us if last else None),
        queue=None if waiting is None else waiting.did,
        pending=None if waiting is None else waiting.pending,
        oldest=None if oldest_us is None else max(committed_us - oldest_us, 0) / 1e6,
        conflicts=merged.side_rows.conflicts,
        late=merged.side_rows.late,
        no_text=merged.side_rows.texts,
        sources=journaled_counts(checkpoint, identity.number) if checkpoint else None,
        maintained=last_maintained(target.location),
    )
    return summary if target.options.target is None else _judged(summary, target.options.target, last)


def _judged(summary: CommitSummary, target: StalenessTarget, last: CommitSummary | None) -> CommitSummary:
    """Return the summary with its verdict on the staleness target and, if it was missed, the rate it would take."""
    summary = dataclasses.replace(summary, target=str(target))
    if summary.staleness is None:
        return summary
    # The oldest that waits is known, the quantiles of what waits are not: it counts where the bound is for the oldest.
    figures = dataclasses.replace(summary.staleness, max=max(summary.staleness.max, summary.oldest or 0.0))
    summary = dataclasses.replace(summary, target_met=target.met(figures))
    if summary.target_met or summary.queue is None or summary.queue.delivered == 0:
        return summary
    batch_s = max(summary.committed_at_us - summary.queue.clock_us, 1) / 1e6
    follows = last is not None and last.batch_id == summary.batch_id - 1
    pace_s = max(summary.committed_at_us - last.committed_at_us, 1) / 1e6 if last is not None and follows else batch_s
    needed = target.needed_rows_per_s(figures, batch_s, summary.queue.delivered / pace_s)
    if needed is None:
        return summary
    return dataclasses.replace(summary, needed_rows_per_s=needed, needed_budget=math.ceil(needed * pace_s))
