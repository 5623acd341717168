"""A latest table's current state, and the rows of a range of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.errors import FeedChangedError, OptionError, SchemaError, TableError
from ....core.rows.key import NO_KEY, Key
from ....delta_format.append_table import DEAD_LETTERS
from ....delta_format.column_mapping import check_mapping
from ....delta_format.deletion_vectors import DeletionVector, read_vector
from ....delta_format.latest_table import (
    KEY_PROPERTY,
    LAYOUT_PROPERTY,
    METADATA_KEY,
    OWN_COLUMNS,
    SEQUENCE_PROPERTY,
    TIME_PROPERTY,
    CommitChanges,
    kept_count,
    recorded_under,
)
from ....delta_format.log import LiveFiles, LogReplay, entry_actions, entry_place
from ....delta_format.scan import open_parquet
from ....storage.folder import TableFolder
from ..contract import Chunk, Range

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclasses.dataclass(frozen=True)
class TableVersion:
    """The description of a latest table at one version."""

    table_id: str  # Delta's id; a recreated table has another one
    version: int
    key: Key
    time: str | None
    columns: pa.Schema
    keep: int | None = 1  # number of newest rows kept of each key; None for all
    sequence: Key = NO_KEY  # columns or fields that order the rows, if no time does


def open_table(folder: TableFolder, version: int | None = None) -> DeltaTable:
    """Open the table, now or at a version; raise OptionError if there is none, DeltaError if the version is gone."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(folder.location, version, storage_options=dict(folder.storage) or None)
    except TableNotFoundError as error:
        raise OptionError(
            f"there is no Delta table at {folder.location}",
            expected="the folder or address of a table that this package's sink writes",
            hint="correct the option `path`, or start the query that writes the table first",
        ) from error


def describe(folder: TableFolder, version: int | None = None) -> TableVersion:
    """Return the table's description; raise TableError if it is not ours or has mapped column names."""
    table = open_table(folder, version)
    metadata = table.metadata()
    properties = metadata.configuration
    columns = pa.schema(table.schema().to_arrow())
    if LAYOUT_PROPERTY not in properties and columns.names != DEAD_LETTERS.names:
        raise TableError(
            f"the Delta table at {folder.location} was not made by this package's sink",
            expected=f"a table with the property {LAYOUT_PROPERTY}, whose commits record the rows that they applied",
            hint='read it with spark.readStream.format("delta"), and make an UpdateStream of the DataFrame',
        )
    check_mapping(json.loads(table.schema().to_json()), properties, folder.location)
    columns = pa.schema([field for field in columns if field.name not in OWN_COLUMNS])
    key = Key(json.loads(properties.get(KEY_PROPERTY, "[]")))
    time, keep = properties.get(TIME_PROPERTY), kept_count(properties)
    sequence = Key(json.loads(properties.get(SEQUENCE_PROPERTY, "[]")))
    return TableVersion(str(metadata.id), table.version(), key, time, columns, keep, sequence)


class LiveFile(NamedTuple):
    """A file of a table at one version."""

    path: str  # relative to the table
    rows: int  # dead ones included
    vector: DeletionVector | None  # the dead rows

    @property
    def live(self) -> int:
        return self.rows - (0 if self.vector is None else self.vector.cardinality)


def live_files(folder: TableFolder, version: int) -> list[LiveFile]:
    """Return the table's files at a version, by path; raise TableError if the log cannot be followed."""
    table = open_table(folder, version)
    vectors: dict[str, DeletionVector] = {}
    if "deletionVectors" in (table.protocol().reader_features or ()):
        log = LogReplay(folder)
        log.follow(version)
        vectors = log.vectors()
    live = LiveFiles.of(table)
    rows = dict(zip(live.paths, live.rows, strict=True))
    counts = {path: count_rows(folder, path) if count is None else count for path, count in rows.items()}
    return [LiveFile(path, counts[path], vectors.get(path)) for path in sorted(counts)]


def count_rows(folder: TableFolder, path: str) -> int:
    """Return the number of rows in a file, from its footer: other writers need not record it in the log."""
    import pyarrow.parquet as pq

    where, filesystem = folder.place(path)
    return int(pq.read_metadata(where, filesystem=filesystem).num_rows)


NEW_CHECKPOINT = "start with a new checkpoint: it begins with the table as it is then"

_NOTHING = CommitChanges(0, {}, {})
# After maintenance, the last commit with the table's low-watermark is a little further back.
_LOOK_BACK = 100


class TableLog:
    """A reader of one table's Delta log."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._last: tuple[int, list[dict[str, Any]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_last": None}

    def has(self, version: int) -> bool:
        return self._folder.has(entry_place(version))

    def actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return the actions of a version's entry; None if there is no such entry."""
        if self._last is None or self._last[0] != version:
            try:
                self._last = version, entry_actions(self._folder, version)
            except FileNotFoundError:
                return None
        return self._last[1]

    def applied(self, version: int, table_id: str) -> CommitChanges | None:
        """Return what a version applied: nothing if it was maintenance, None without an entry.

        Raise FeedChangedError if it changed rows without a record, or made another table.
        """
        actions = self.actions(version)
        if actions is None:
            return None
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        made = [each["metaData"]["id"] for each in actions if "metaData" in each]
        if any(each != table_id for each in made):
            raise self.made_anew()
        found = CommitChanges.of_commit(info)
        if found is not None:
            return found
        if not any(each.get(kind, {}).get("dataChange") for each in actions for kind in ("add", "remove")):
            return _NOTHING
        if made and recorded_under(METADATA_KEY, info) is not None:
            raise FeedChangedError(
                f"version {version} of the table at {self._folder.location} has replaced its rows by others with other "
                "columns",
                expected="the same columns for the life of a checkpoint",
                hint=NEW_CHECKPOINT,
            )
        raise FeedChangedError(
            f"version {version} of the table at {self._folder.location} was not committed by this package's sink, and "
            "changed rows "
            f"(operation {info.get('operation', 'unknown')})",
            expected="commits of the sink, and maintenance that changes no row, such as OPTIMIZE",
            hint=NEW_CHECKPOINT,
        )

    def last_applied(self, version: int) -> CommitChanges | None:
        """Return the sink's last record up to a version; None if the last `_LOOK_BACK` versions have none."""
        for each in range(version, max(version - _LOOK_BACK, -1), -1):
            for action in self.actions(each) or ():
                found = CommitChanges.of_commit(action.get("commitInfo", {}))
                if found is not None:
                    return found
        return None

    def made_anew(self) -> FeedChangedError:
        """Return the error for a table other than the one that the checkpoint began with."""
        return FeedChangedError(
            f"the table at {self._folder.location} is not the one that the checkpoint began with: it was removed and "
            "created again",
            expected="the same table for the life of a checkpoint",
            hint=NEW_CHECKPOINT,
        )

    def gone(self, version: int, what: str) -> FeedChangedError:
        """Return the error for a part of a version that is gone before it was read."""
        return FeedChangedError(
            f"{what} of version {version} of the table at {self._folder.location} is gone before it was read",
            expected="log entries and files that are kept until those who follow the table have read them",
            hint="run this query more often, VACUUM less, or give the query that writes the table a longer retention; "
            "then " + NEW_CHECKPOINT,
        )


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
            "(schemaEvolution)",
            hint=NEW_CHECKPOINT,
        ) from error
