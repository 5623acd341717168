"""A commit's changes of a bucket as rows: new ones, and replaced or deleted ones (`changes=full`)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ....conf.column_names import columns_of
from ....conf.errors import FeedChangedError, TableError
from ....core.rows.columns import columns_at
from ....core.rows.exact_integers import Int64s
from ....core.rows.newest import key_codes
from ....delta_format.deletion_vectors import DeletionVector, read_vector
from ....delta_format.latest_table import BUCKET, CommitChanges, kept_count
from ....delta_format.scan import open_parquet, rows_at
from ....storage.folder import TableFolder
from ..contract import Chunk, Range
from .table import ROWS_AT_ONCE, TableLog, TableVersion, conformed, last_rows

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
    recorded = (CommitChanges.of_commit(action["commitInfo"]) for action in found if "commitInfo" in action)
    applied = next((each for each in recorded if each is not None), CommitChanges(0, {}, {}))
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
            file = CameFile(path, applied.rows.get(path, 0))
            came.setdefault(_bucket_of(path, added, location), []).append(file)
    for path, count in applied.deletions.items():
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


CHANGES = ("insert", "update_preimage", "update_postimage", "delete")
"""The values of the column of changes, which are those of Delta's change data feed."""

INSERT, PREIMAGE, POSTIMAGE, DELETE = range(4)


class ChangeImages(NamedTuple):
    """Rows before and after a commit, in the order in which they leave."""

    places: Int64s  # an earlier row's place; or that of an added row, plus the number of earlier rows
    changes: Int64s  # places in `CHANGES`, one for each of `places`


def images_of(before: Int64s, kept: Int64s, fresh: Int64s) -> ChangeImages:
    """Return the changes that a commit made.

    The arrays have key numbers (at least 0) of rows that may have left, rows that are unchanged, and added rows. Each
    row that left is once a preimage or a deletion. Each added row is once a postimage or an insertion. A preimage is
    directly before its postimage.
    """
    held, came = len(before), len(fresh)
    size = 1 + max((int(each.max()) for each in (before, kept, fresh) if len(each)), default=-1)
    stays = np.zeros(size, dtype=np.bool_)
    stays[kept] = True
    gone = np.flatnonzero(~stays[before])
    successor = np.full(size, -1, dtype=np.int64)
    successor[fresh] = np.arange(came)
    preimage = np.full(came, -1, dtype=np.int64)
    met = gone[successor[before[gone]] >= 0]
    preimage[successor[before[met]]] = met
    updates = preimage >= 0
    deleted = np.setdiff1d(gone, preimage[updates], assume_unique=True)
    after = np.arange(came) + np.cumsum(updates)  # where each row that came is, behind its preimage
    total = came + int(np.count_nonzero(updates))
    places = np.empty(total, dtype=np.int64)
    changes = np.empty(total, dtype=np.int64)
    places[after], changes[after] = np.arange(came) + held, np.where(updates, POSTIMAGE, INSERT)
    places[after[updates] - 1], changes[after[updates] - 1] = preimage[updates], PREIMAGE
    return ChangeImages(np.concatenate([places, deleted]), np.concatenate([changes, np.full(len(deleted), DELETE)]))


CHANGE = "_change_type"
"""The column of changes, named as in Delta's change data feed."""

CHANGE_FIELD = pa.field(CHANGE, pa.string())


class _Before(NamedTuple):
    """Rows of one file that may have left: their identifying columns and their positions."""

    path: str
    known_by: pa.Table
    positions: Int64s


def read_changes(
    folder: TableFolder, part: Range, change: BucketChange, table: TableVersion, schema: pa.Schema
) -> Iterator[Chunk]:
    """Yield a bucket's changes, each preimage directly before its postimage.

    Replaced rows are read from the files that the commit removed, and from the rows that it marked dead. Memory: the
    keys of those files, and the changed rows. The range's place has the version and whether a key has several rows
    (``history``). `schema` includes :data:`CHANGE`. Raise FeedChangedError if a file or a vector is gone, or differs.
    """
    place = part.place
    try:
        before, fresh, places, changes = _changed(folder, change, table, schema, history=bool(place["history"]))
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise TableLog(folder).gone(place["version"], f"a file of bucket {place['bucket']}") from error
    if len(places) > part.span:
        raise FeedChangedError(
            f"version {place['version']} of the table at {folder.location} changed {len(places)} rows of bucket "
            f"{place['bucket']}, where it recorded {part.span} at most",
            expected="files as the commit wrote them",
            hint="check the table with `upstream check`, and start with a new checkpoint",
        )
    both = pa.concat_tables([before, fresh])
    for at in range(0, len(places), ROWS_AT_ONCE):
        some = slice(at, at + ROWS_AT_ONCE)
        rows, kinds = both.take(pa.array(places[some])), changes[some]
        deleted = kinds == DELETE
        yield Chunk(
            _with_changes(rows, pa.array(CHANGES).take(pa.array(kinds)), schema),
            at,
            deleted=deleted if deleted.any() else None,
            imaged=True,
        )


def as_inserted(chunk: Chunk, schema: pa.Schema) -> Chunk:
    """Return rows of the first version as insertions."""
    count = chunk.rows.num_rows
    return Chunk(_with_changes(chunk.rows, pa.repeat(pa.scalar(CHANGES[0]), count), schema), chunk.index)


def _with_changes(rows: pa.Table, changes: pa.Array, schema: pa.Schema) -> pa.Table:
    columns = [changes if field.name == CHANGE else rows.column(field.name) for field in schema]
    return pa.table(columns, names=schema.names)


def _changed(
    folder: TableFolder, change: BucketChange, table: TableVersion, schema: pa.Schema, *, history: bool
) -> tuple[pa.Table, pa.Table, Int64s, Int64s]:
    """Return the rows that left, the added rows, the order of both together, and the kind of each change."""
    order = table.sequence or (() if table.time is None else (table.time,))
    names = [*table.key, *(order if history else ())]
    known_by = pa.schema([table.columns.field(name) for name in dict.fromkeys(columns_of(names, table.columns.names))])
    columns = pa.schema([field for field in schema if field.name != CHANGE])
    held = [_before(folder, rows, known_by) for rows in change.left]
    count = sum(len(each.positions) for each in held)
    kept, fresh_known = [known_by.empty_table()], [known_by.empty_table()]
    if count:  # else nothing can be a preimage, and rows that were put beside others are not read
        for file in change.came:
            rows = _read(folder, file.path, known_by)
            border = rows.num_rows - file.fresh
            if border < 0:
                raise pa.ArrowInvalid(f"{file.path} holds {rows.num_rows} rows where {file.fresh} were recorded")
            kept.append(rows.slice(0, border))
            fresh_known.append(rows.slice(border))
        every = pa.concat_tables([*(each.known_by for each in held), *kept, *fresh_known])
        codes, _ = key_codes(columns_at(every, names))
    else:
        codes = np.arange(change.fresh)
    images = images_of(codes[:count], codes[count : len(codes) - change.fresh], codes[len(codes) - change.fresh :])
    places = images.places
    chosen = np.sort(places[places < count])
    before = _rows_before(folder, held, chosen, columns)
    # The rows that left are there alone, without those that only lie elsewhere now.
    compact = np.where(places < count, np.searchsorted(chosen, places), places - count + len(chosen))
    fresh = [columns.empty_table()]
    for file in change.came:
        if file.fresh:
            fresh += [conformed(rows, columns) for rows in last_rows(folder, file.path, file.fresh, columns.names)]
    return before, pa.concat_tables(fresh), compact, images.changes


def _before(folder: TableFolder, rows: LeftRows, schema: pa.Schema) -> _Before:
    where, filesystem = folder.place(rows.path)
    with open_parquet(where, filesystem) as file:
        count = file.metadata.num_rows
        dead = np.zeros(count, dtype=np.bool_) if rows.before is None else read_vector(folder, rows.before, count)
        if not rows.marked:
            positions = np.flatnonzero(~dead)
            found = file.read(columns=schema.names, use_threads=False)
            found = found if rows.before is None else found.filter(pa.array(~dead))
        else:
            assert rows.after is not None
            positions = np.flatnonzero(read_vector(folder, rows.after, count) & ~dead)
            found = rows_at(file, positions, schema.names)
    return _Before(rows.path, conformed(found, schema), positions)


def _rows_before(folder: TableFolder, held: Sequence[_Before], chosen: Int64s, schema: pa.Schema) -> pa.Table:
    """Return the `chosen` of the rows that may have left, by increasing places among all of them."""
    parts, first = [schema.empty_table()], 0
    for each in held:
        low, high = np.searchsorted(chosen, [first, first + len(each.positions)])
        if high > low:
            where, filesystem = folder.place(each.path)
            with open_parquet(where, filesystem) as file:
                names = _present(schema, file.schema_arrow)
                rows = rows_at(file, each.positions[chosen[low:high] - first], names)
            parts.append(conformed(rows, schema))
        first += len(each.positions)
    return pa.concat_tables(parts)


def _read(folder: TableFolder, path: str, schema: pa.Schema) -> pa.Table:
    where, filesystem = folder.place(path)
    with open_parquet(where, filesystem) as file:
        return conformed(file.read(columns=schema.names, use_threads=False), schema)


def _present(schema: pa.Schema, file: pa.Schema) -> list[str]:
    """Return the columns that a file has; if none, its first column, which counts the rows."""
    return [name for name in schema.names if name in file.names] or file.names[:1]
