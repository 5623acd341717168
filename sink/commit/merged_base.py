"""A check that the rows with which a batch's tasks merged are still the table's rows at the commit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...conf.errors import TableError
from ..merge.bucket import BucketMerge, BucketMerger
from ..merge.newest_rows import newest_rows
from ..merge.older_keys import OlderKeys
from ..merge.outputs import Outputs, SideRows, SideRowWriter
from ..merge.pending import concat_pending
from ..merge.task import TaskResult
from ..spec.layout import Layout
from ..spec.options import SinkTarget
from ..table.key_index import key_hashes
from ..table.table import Snapshot
from .account import Merged
from .rebase import buckets_changed

__all__ = ["MergedBase"]


class MergedBase:
    """A comparison of the files that tasks merged with and those that the table has at the commit."""

    def __init__(self, target: SinkTarget, layout: Layout, merger: BucketMerger, outputs: Outputs) -> None:
        self._target = target
        self._layout = layout
        self._merger = merger
        self._outputs = outputs

    def check(self, results: Sequence[TaskResult], snapshot: Snapshot) -> None:
        """Refuse a batch whose buckets others have changed since the tasks read them; compaction is no change."""
        merges = [merge for result in results for merge in result.merges if not merge.blind]
        seen = {(merge.bucket, merge.held) for merge in merges if snapshot.of_bucket(merge.bucket) != merge.held}
        for bucket in sorted(buckets_changed(self._target.folder, snapshot, seen)):
            raise TableError(
                f"bucket {bucket} of the table at {self._target.location} was changed by another writer during this "
                "batch",
                expected="one query writing to the table at a time; others may put files together, and change no row",
                hint="restart the query; it repeats the batch upon the table as it is now",
            )

    def merge_again(self, merged: Merged, snapshot: Snapshot, made: list[str]) -> Merged:
        """Return the merges with each bucket once, upon the files that it has now.

        `snapshot` is the table now, with the rows that the tasks merged with. `made` receives the files staged here.
        """
        by_bucket: dict[int, list[BucketMerge]] = {}
        for merge in merged.merges:
            by_bucket.setdefault(merge.bucket, []).append(merge)
        final: list[BucketMerge] = []
        strays, side_rows = merged.strays, SideRowWriter(self._outputs)
        older = dict(merged.older)
        for bucket, merges in by_bucket.items():
            held = snapshot.of_bucket(bucket)
            if len(older[bucket]) > 1 and any(each.total for each in older[bucket]):
                newer = [key_hashes(self._merger.came_with(merge).rows, self._layout.key) for merge in merges]
                older[bucket] = [OlderKeys.together(older[bucket], np.concatenate(newer))]
            if merges[0].blind or (len(merges) == 1 and merges[0].held == held):
                final += merges
                continue
            several = len(merges) > 1
            strays += several
            counts = (
                (side_rows.lost,) if several else ()
            )  # conflicts within one merge, and with what is held, are counted
            came = newest_rows(
                concat_pending([self._merger.came_with(merge) for merge in merges]), self._layout, *counts
            )
            _, merge = self._merger.merge(bucket, held, came)
            assert merge.won, "rows that won alone win together, and against the same rows in other files"
            made += [file.path for file in merge.staged()]
            final.append(merge)
        return Merged(final, strays, SideRows.together([merged.side_rows, side_rows.staged()]), older)
