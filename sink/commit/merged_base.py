"""A check at the commit that the rows with which a batch's tasks merged are still the table's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from ...conf.errors import TableError
from ...delta_format.deletion_vectors import DeletionVector
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import entry_actions
from ..merge.batch_rows import OlderKeys, concat_pending
from ..merge.bucket import BucketMerge
from ..merge.newest_rows import newest_rows
from ..merge.outputs import SideRows, SideRowWriter
from ..merge.task import TableWriter, TaskResult
from ..table.key_index import key_hashes
from ..table.table import Snapshot
from .account import MergeResults

if TYPE_CHECKING:
    from ...storage.folder import TableFolder
    from ..table.table import BucketFiles


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
    """Refuse a batch whose buckets others have changed since the tasks read them; compaction is no change."""
    merges = [merge for result in results for merge in result.merges if not merge.blind]
    seen = {(merge.bucket, merge.held) for merge in merges if snapshot.of_bucket(merge.bucket) != merge.held}
    for bucket in sorted(buckets_changed(writer.target.folder, snapshot, seen)):
        raise TableError(
            f"bucket {bucket} of the table at {writer.target.location} was changed by another writer during this batch",
            expected="one query writing to the table at a time; others may put files together, and change no row",
            hint="restart the query; it repeats the batch upon the table as it is now",
        )


def merge_again(writer: TableWriter, merged: MergeResults, snapshot: Snapshot, made: list[str]) -> MergeResults:
    """Return the merges with each bucket once, upon the files that it has now.

    `snapshot` is the table now, with the rows that the tasks merged with. `made` receives the files staged here.
    """
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
