"""Rows of a range of a latest table: the last rows of a file, or deletions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.errors import SchemaError
from ....delta_format.deletion_vectors import DeletionVector, read_vector
from ....delta_format.scan import open_parquet
from ....storage.folder import TableFolder
from ..contract import Chunk, Range
from .table import NEW_CHECKPOINT, TableLog

ROWS_AT_ONCE = 262_144
"""The maximum of rows in memory at once, where a part suffices."""


def read_range(folder: TableFolder, part: Range, schema: pa.Schema) -> Iterator[Chunk]:
    """Yield a range's rows in pieces; raise FeedChangedError if the file is gone, or not what the commit wrote.

    The range's place has a version, a file, and how many of its last rows to read (``path``, ``rows``, ``deleted``).
    ``vector`` has the dead rows of a whole file. If a commit applied nothing, there is no file.
    """
    place = part.place
    if "path" not in place:
        return
    at = 0
    try:
        tables = last_rows(folder, place["path"], int(place["rows"]), schema.names)
        if "vector" in place:
            vector = DeletionVector.from_json(place["vector"])
            tables = _without(tables, read_vector(folder, vector, int(place["rows"])))
        for table in tables:
            rows = conformed(table, schema)
            if not schema.names:  # Arrow keeps no count of rows where there is no column
                rows = pa.table([pa.nulls(table.num_rows)], names=[""])
            deleted = np.ones(table.num_rows, dtype=np.bool_) if place.get("deleted") else None
            stamps = None if deleted is None else np.full(table.num_rows, part.arrival_us, dtype=np.int64)
            yield Chunk(rows, at, None, deleted, stamps)
            at += table.num_rows
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise TableLog(folder).gone(place["version"], f"the file {place['path']}") from error


def last_rows(folder: TableFolder, path: str, count: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield `count` rows from the end of a file; row groups before them are not read."""
    where, filesystem = folder.place(path)
    with open_parquet(where, filesystem) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        first, held = len(sizes), 0
        while held < count:
            if first == 0:
                raise pa.ArrowInvalid(f"it holds {held} rows where {count} were recorded")
            first -= 1
            held += sizes[first]
        skip = held - count
        names = file.schema_arrow.names
        present = [name for name in columns if name in names] or names[:1]
        batches = file.iter_batches(ROWS_AT_ONCE, list(range(first, len(sizes))), columns=present, use_threads=False)
        for batch in batches:
            here = batch.slice(min(skip, batch.num_rows))
            skip -= batch.num_rows - here.num_rows
            if here.num_rows:
                yield pa.Table.from_batches([here])


def _without(tables: Iterator[pa.Table], dead: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    at = 0
    for table in tables:
        live = ~dead[at : at + table.num_rows]
        at += table.num_rows
        if live.any():
            yield table.filter(pa.array(live))


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, null where the table lacks them; raise SchemaError if a value does not fit."""
    return pa.table([_column(table, field) for field in schema], names=schema.names)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """Return a column in the wanted type; null if the table lacks it, as deletions and older files do."""
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    column = table.column(field.name)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"the column {field.name!r} of the table has values that {field.type} cannot hold: {error}",
            expected="the types that the table had when this checkpoint began; it has been given wider ones "
            "(mergeSchema)",
            hint=NEW_CHECKPOINT,
        ) from error
