"""What a commit did to each bucket, by its entry in the log: files that came, files that left, rows marked as dead.

Nothing is written for it. The files and vectors that a commit took out of use stay for the retention, as those of the
rows that it brought do.
"""

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
    """Rows of a file that the bucket has no more, or has in another file.

    Attributes
    ----------
    path : str
        Relative to the table.
    before, after : DeletionVector or None
        Which rows were dead before the commit, and which are since.
    marked : bool
        Whether the file stays: then its rows that left are those that only `after` has. Else all that were not dead.
    """

    path: str
    before: DeletionVector | None
    after: DeletionVector | None
    marked: bool


class CameFile(NamedTuple):
    """A file that came: its path, and how many of its rows (the last ones) the commit brought."""

    path: str
    fresh: int


@dataclasses.dataclass(frozen=True)
class BucketChange:
    """What a commit did to one bucket.

    Attributes
    ----------
    left : sequence of LeftRows
    came : sequence of CameFile
    deletions : int
        How many keys it recorded as deleted.
    """

    left: Sequence[LeftRows] = ()
    came: Sequence[CameFile] = ()
    deletions: int = 0

    @property
    def files(self) -> int:
        """How many files it takes to read the changes."""
        return len(self.left) + len(self.came)

    @property
    def fresh(self) -> int:
        """How many rows came."""
        return sum(file.fresh for file in self.came)

    def most_changes(self, keep: int | None) -> int | None:
        """Return a number that the changes do not exceed, or None if only the files have one.

        Parameters
        ----------
        keep
            How many rows of a key the table keeps: a row that comes makes one leave at most, a deletion so many.
        """
        if not self.fresh and not self.deletions:
            return None if self.left else 0
        return 2 * self.fresh + self.deletions * (keep or 1)


def bucket_changes(actions: Iterable[Mapping[str, Any]], location: str) -> dict[str, BucketChange]:
    """Return what a commit of ours did to each bucket whose rows it changed, by the bucket's number as text.

    Parameters
    ----------
    actions
        Of the commit's entry.
    location
        The table's, for errors.

    Raises
    ------
    TableError
        The entry does not name the bucket of a file.
    """
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
