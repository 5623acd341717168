"""The merges of a batch with the table's present rows, and the summary that its commit records."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from ...conf.errors import TableError
from ...core.feedback.offsets import journaled_counts
from ...core.feedback.reports import read_queues
from ...delta_format.deletion_vectors import DeletionVector
from ...delta_format.latest_table import BUCKET, NOTHING_YET, CommitChanges
from ...delta_format.log import entry_actions
from ..figures.summary import CommitSummary, QueueBacklog, look_at_queue
from ..maintenance.runner import last_maintained
from ..merge.batch_rows import OlderKeys, concat_pending, counted
from ..merge.bucket import BucketMerge, Tally
from ..merge.newest_rows import newest_rows
from ..merge.outputs import SideRows, SideRowWriter
from ..merge.task import Arrivals, TableWriter, TaskResult
from ..merge.task_rows import later_bound
from ..table.key_index import key_hashes
from ..table.table import Snapshot

if TYPE_CHECKING:
    from ...conf.units import StalenessTarget
    from ...storage.folder import TableFolder
    from ..spec.options import SinkTarget
    from ..table.files import StagedFile
    from ..table.table import BucketFiles, Snapshot
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

    def applied(self, summary: CommitSummary, gone: Sequence[StagedFile] = ()) -> CommitChanges:
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
    anew: bool = False,
    backlog: QueueBacklog | None = None,
) -> CommitSummary | None:
    """Return the summary of a batch; None if there is nothing to record, such as no rows.

    `last` is the summary of the query's commit before. A batch that begins the table `anew` is recorded in any case.
    `backlog` is that of a hosted query; others have it below their checkpoint.
    """
    marks = dict(last.low_watermarks) if last and not anew else {}
    for result in results:
        for feed, bound in result.bounds.items():
            marks[feed] = later_bound(marks[feed], bound) if feed in marks else bound
    rows = sum(result.rows for result in results)
    if not anew and rows == 0 and ((last is not None and marks == last.low_watermarks) or not marks):
        return None
    updates = sum(result.updates for result in results)
    tally = merged.tally
    committed_us = clock_us()
    arrivals = Arrivals.together([result.arrivals for result in results])
    staleness = arrivals.staleness(committed_us)
    checkpoint = target.checkpoint_folder if target.checkpoint else None  # a batch has none
    waiting = look_at_queue(read_queues(checkpoint), identity.number) if checkpoint else backlog
    open_marks = [bound for bound in marks.values() if bound is not None]
    oldest_us = None if waiting is None else waiting.oldest_us
    summary = CommitSummary(
        batch_id=identity.number,
        query_id=identity.writer,
        committed_at_us=committed_us,
        rows=rows,
        updates=updates,
        applied=tally.applied,
        superseded=updates - tally.applied,
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
    if summary.target_met or summary.queue is None or summary.queue.applied == 0:
        return summary
    batch_s = max(summary.committed_at_us - summary.queue.clock_us, 1) / 1e6
    follows = last is not None and last.batch_id == summary.batch_id - 1
    pace_s = max(summary.committed_at_us - last.committed_at_us, 1) / 1e6 if last is not None and follows else batch_s
    needed = target.needed_rows_per_s(figures, batch_s, summary.queue.applied / pace_s)
    if needed is None:
        return summary
    return dataclasses.replace(summary, needed_rows_per_s=needed, needed_budget=math.ceil(needed * pace_s))


_Files = dict[str, "DeletionVector | None"]

# Further back a batch is repeated; a bucket is rebuilt by one commit or two.
_LOOK_BACK = 256


def buckets_changed(folder: TableFolder, snapshot: Snapshot, seen: Iterable[tuple[int, BucketFiles]]) -> set[int]:
    """Return the `seen` buckets that may hold other rows now, because some commit did more than rearrange them.

    `seen` has buckets with the files that they had. Commits are undone from the latest one on, until the files
    are those.
    """
    state = {each: _files(snapshot.of_bucket(each[0])) for each in seen}
    changed = {bucket for bucket, held in state if held.tombstones != snapshot.tombstones.paths.get(bucket)}
    for version in range(snapshot.version, max(snapshot.version - _LOOK_BACK, -1), -1):
        moved = {each for each, files in state.items() if each[0] not in changed and files != _files(each[1])}
        if not moved:
            return changed
        try:
            actions = entry_actions(folder, version)
        except (OSError, ValueError):
            break
        # What rearranges files and changes the table as well may have given their rows to other buckets.
        others = any("metaData" in action for action in actions)
        for kind in ("add", "remove"):  # the other way round than they took effect
            for action in (action[kind] for action in actions if kind in action):
                bucket = (action.get("partitionValues") or {}).get(BUCKET)
                for each in moved if bucket is None else {each for each in moved if each[0] == int(bucket)}:
                    if bucket is None or others or action.get("dataChange", True):
                        changed.add(each[0])
                    _undo(state[each], kind, action)
    return changed | {bucket for (bucket, held), files in state.items() if files != _files(held)}


def _files(held: BucketFiles) -> _Files:
    return dict(zip(held.rows, held.vectors, strict=True))


def _undo(files: _Files, kind: str, action: Mapping[str, Any]) -> None:
    path, vector = unquote(action["path"]), action.get("deletionVector")
    if kind == "add":
        files.pop(path, None)
    else:
        files[path] = None if vector is None else DeletionVector.from_json(vector)


def check_base(writer: TableWriter, results: Sequence[TaskResult], snapshot: Snapshot) -> None:
    """Refuse a batch whose buckets others have changed since the tasks read them; compaction is not a change."""
    merges = [merge for result in results for merge in result.merges if not merge.blind]
    seen = {(merge.bucket, merge.held) for merge in merges if snapshot.of_bucket(merge.bucket) != merge.held}
    for bucket in sorted(buckets_changed(writer.target.folder, snapshot, seen)):
        raise TableError(
            f"bucket {bucket} of the table at {writer.target.location} was changed by another writer during this batch",
            expected="one query writing to the table at a time; others may put files together, and change no row",
            hint="restart the query; it repeats the batch on the present table",
        )


def merge_again(writer: TableWriter, merged: MergeResults, snapshot: Snapshot, made: list[str]) -> MergeResults:
    """Return the merges with each bucket merged once, on its files in `snapshot`. `made` receives the staged files."""
    by_bucket: dict[int, list[BucketMerge]] = {}
    for merge in merged.merges:
        by_bucket.setdefault(merge.bucket, []).append(merge)
    final: list[BucketMerge] = []
    strays, side_rows = merged.strays, SideRowWriter(writer.outputs)
    older = dict(merged.older)
    for bucket, merges in by_bucket.items():
        held = snapshot.of_bucket(bucket)
        if len(older[bucket]) > 1 and any(each.total for each in older[bucket]):
            newer = [key_hashes(writer.merger.came_with(merge).rows, writer.layout.key) for merge in merges]
            older[bucket] = [OlderKeys.together(older[bucket], np.concatenate(newer))]
        if merges[0].blind or (len(merges) == 1 and merges[0].held == held):
            final += merges
            continue
        several = len(merges) > 1
        strays += several
        counts = (side_rows.lost,) if several else ()  # conflicts within one merge, and with what is held, are counted
        came = newest_rows(concat_pending([writer.merger.came_with(merge) for merge in merges]), writer.layout, *counts)
        _, merge = writer.merger.merge(bucket, held, came)
        assert merge.won, "rows that won alone win together, and against the same rows in other files"
        made += [file.path for file in merge.staged()]
        final.append(merge)
    return MergeResults(final, strays, SideRows.together([merged.side_rows, side_rows.staged()]), older)
