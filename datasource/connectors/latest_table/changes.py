"""A commit's changes of a bucket as rows: new ones, and replaced or deleted ones (`changes=full`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.column_names import columns_of
from ....conf.errors import FeedChangedError
from ....core.rows.columns import columns_at
from ....core.rows.newest import key_codes
from ....delta_format.deletion_vectors import read_vector
from ....delta_format.parquet_files import open_parquet, rows_at
from ....storage.folder import TableFolder
from ..contract import Chunk, Range
from .commit_changes import BucketChange, LeftRows
from .images import CHANGES, DELETE, images_of
from .log import TableLog
from .table import Described
from .task import ROWS_AT_ONCE, conformed, last_rows

__all__ = ["CHANGE", "CHANGE_FIELD", "as_inserted", "read_changes"]

CHANGE = "_change_type"
"""The column of changes, named as in Delta's change data feed."""

CHANGE_FIELD = pa.field(CHANGE, pa.string())

Int64s = npt.NDArray[np.int64]


class _Before(NamedTuple):
    """Rows of one file that may have left: their identifying columns and their positions."""

    path: str
    known_by: pa.Table
    positions: Int64s


def read_changes(
    folder: TableFolder, part: Range, change: BucketChange, table: Described, schema: pa.Schema
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
    folder: TableFolder, change: BucketChange, table: Described, schema: pa.Schema, *, history: bool
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
