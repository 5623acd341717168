"""A commit's effect on each bucket, by its log entry: files added, files removed, rows marked dead."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from ....conf.errors import TableError
from ....delta_format.deletion_vectors import DeletionVector
from ....delta_format.latest_table import BUCKET, Delivered, kept_count

__all__ = ["BucketChange", "CameFile", "LeftRows", "bucket_changes", "keep_after"]

_FOLDER = re.compile(rf"(?:^|/){BUCKET}=(\d+)/")


class LeftRows(NamedTuple):
    """Rows of a file that the bucket no longer has, or has in another file."""

    path: str  # relative to the table
    before: DeletionVector | None  # rows that were dead before the commit
    after: DeletionVector | None  # rows that are dead since
    marked: bool  # the file stays, and the rows that left are those only in `after`; else all live rows left


class CameFile(NamedTuple):
    """An added file: its path, and how many of its rows (the last ones) the commit brought."""

    path: str
    fresh: int


@dataclasses.dataclass(frozen=True)
class BucketChange:
    """A commit's effect on one bucket."""

    left: Sequence[LeftRows] = ()
    came: Sequence[CameFile] = ()
    deletions: int = 0  # number of keys that it recorded as deleted

    @property
    def files(self) -> int:
        return len(self.left) + len(self.came)

    @property
    def fresh(self) -> int:
        return sum(file.fresh for file in self.came)

    def most_changes(self, keep: int | None) -> int | None:
        """Return the maximum of changes; None if only the files have it.

        An added row removes one row at most, and a deletion all that the table keeps of a key (`keep`).
        """
        if not self.fresh and not self.deletions:
            return None if self.left else 0
        return 2 * self.fresh + self.deletions * (keep or 1)


def bucket_changes(actions: Iterable[Mapping[str, Any]], location: str) -> dict[str, BucketChange]:
    """Return our commit's effect on each bucket whose rows it changed, by the bucket's number as text."""
    found = [action for action in actions if action.keys() & {"add", "remove", "commitInfo"}]
    recorded = (Delivered.of_commit(action["commitInfo"]) for action in found if "commitInfo" in action)
    delivered = next((each for each in recorded if each is not None), Delivered(0, {}, {}))
    adds = {unquote(each["add"]["path"]): each["add"] for each in found if "add" in each}
    removes = {unquote(each["remove"]["path"]): each["remove"] for each in found if "remove" in each}
    left: dict[str, list[LeftRows]] = {}
    came: dict[str, list[CameFile]] = {}
    deletions: dict[str, int] = {}
    for path, removed in removes.items():
        if removed.get("dataChange", True):
            vectors = _vector(removed), _vector(adds.get(path, {}))
            rows = LeftRows(path, *vectors, path in adds)
            left.setdefault(_bucket_of(path, removed, location), []).append(rows)
    for path, added in adds.items():
        if path not in removes and added.get("dataChange", True):
            file = CameFile(path, delivered.rows.get(path, 0))
            came.setdefault(_bucket_of(path, added, location), []).append(file)
    for path, count in delivered.deletions.items():
        bucket = _bucket_of(path, {}, location)
        deletions[bucket] = deletions.get(bucket, 0) + count
    return {
        bucket: BucketChange(left.get(bucket, ()), came.get(bucket, ()), deletions.get(bucket, 0))
        for bucket in sorted(left.keys() | came.keys(), key=int)
    }


def keep_after(actions: Iterable[Mapping[str, Any]], keep: int | None) -> int | None:
    """Return how many rows of each key the table keeps after a commit, before which it kept `keep`."""
    for action in actions:
        if "metaData" in action:
            keep = kept_count(action["metaData"].get("configuration") or {})
    return keep


def _vector(action: Mapping[str, Any]) -> DeletionVector | None:
    vector = action.get("deletionVector")
    return None if vector is None else DeletionVector.from_json(vector)


def _bucket_of(path: str, action: Mapping[str, Any], location: str) -> str:
    """Return a file's bucket, by its action or by the folder that the sink writes it into."""
    values: Mapping[str, Any] = action.get("partitionValues") or {}
    match = _FOLDER.search(path)
    if BUCKET not in values and match is None:
        raise TableError(
            f"an entry in the log of the table at {location} does not name the bucket of the file {path}",
            expected="entries as the sink, Spark or delta-rs write them",
            hint="read the table without changes=full",
        )
    return str(values[BUCKET]) if BUCKET in values else str(match and match[1])
