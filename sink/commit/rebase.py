"""A check that a bucket's files were only rearranged since a batch read them, as OPTIMIZE does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...delta_format.deletion_vectors import DeletionVector
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import entry_actions

if TYPE_CHECKING:
    from ...storage.folder import TableFolder
    from ..table.table import Held, Snapshot

__all__ = ["buckets_changed"]

_Files = dict[str, "DeletionVector | None"]

# Further back a batch is repeated; a bucket is laid out anew by one commit or two.
_LOOK_BACK = 256


def buckets_changed(folder: TableFolder, snapshot: Snapshot, seen: Iterable[tuple[int, Held]]) -> set[int]:
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


def _files(held: Held) -> _Files:
    return dict(zip(held.rows, held.vectors, strict=True))


def _undo(files: _Files, kind: str, action: Mapping[str, Any]) -> None:
    path, vector = unquote(action["path"]), action.get("deletionVector")
    if kind == "add":
        files.pop(path, None)
    else:
        files[path] = None if vector is None else DeletionVector.from_json(vector)
