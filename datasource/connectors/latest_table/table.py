"""A latest table's current state: its id, layout and live files."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ....conf.errors import OptionError, TableError
from ....delta_format.column_mapping import check_mapping
from ....delta_format.data_files import LiveFiles
from ....delta_format.deletion_vectors import DeletionVector
from ....delta_format.latest_table import (
    BUCKET,
    KEY_PROPERTY,
    LAYOUT_PROPERTY,
    SEQ,
    SEQUENCE_PROPERTY,
    TIME_PROPERTY,
    kept_count,
)
from ....delta_format.log import LogReplay
from ....storage.folder import TableFolder

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["Described", "LiveFile", "count_rows", "describe", "live_files", "open_table"]


@dataclasses.dataclass(frozen=True)
class Described:
    """The description of a latest table at one version."""

    table_id: str  # Delta's id; a recreated table has another one
    version: int
    key: tuple[str, ...]
    time: str | None
    columns: pa.Schema
    keep: int | None = 1  # number of newest rows kept of each key; None for all
    sequence: tuple[str, ...] = ()  # columns or fields that order the rows, if no time does


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


def describe(folder: TableFolder, version: int | None = None) -> Described:
    """Return the table's description; raise TableError if it is not ours or has mapped column names."""
    table = open_table(folder, version)
    metadata = table.metadata()
    properties = metadata.configuration
    if LAYOUT_PROPERTY not in properties:
        raise TableError(
            f"the Delta table at {folder.location} was not made by this package's sink",
            expected=f"a table with the property {LAYOUT_PROPERTY}, whose commits say what they delivered",
            hint='read it with spark.readStream.format("delta"), and take the DataFrame into an UpdateStream',
        )
    check_mapping(json.loads(table.schema().to_json()), properties, folder.location)
    whole = pa.schema(table.schema().to_arrow())
    columns = pa.schema([field for field in whole if field.name not in (BUCKET, SEQ)])
    key = tuple(json.loads(properties[KEY_PROPERTY]))
    time, keep = properties.get(TIME_PROPERTY), kept_count(properties)
    sequence = tuple(json.loads(properties.get(SEQUENCE_PROPERTY, "[]")))
    return Described(str(metadata.id), table.version(), key, time, columns, keep, sequence)


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
