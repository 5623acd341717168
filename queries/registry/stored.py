"""Stored relations in the journal: a Delta table, its columns, and the version that queries read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from ...conf.errors import CheckpointError, SchemaError
from ...operators.tables.reading import pinned_table
from ..relations.nodes import Stream
from ..relations.stored import StoredTable
from .changes import Change
from .settings import stream_from_json, stream_to_json

__all__ = ["change_to", "pinned", "relation_of"]

_OWN = "_upstream"


def pinned(name: str, location: str, storage: Mapping[str, str] | None = None) -> Stream:
    """Return a stored relation over a Delta table's current version.

    The object store's options in `storage` do not become part of it. Raises SchemaError if a column has a type unknown
    to Spark, or all columns are UpStream's own.
    """
    version, columns = pinned_table(location, storage or {})
    own = pa.schema([field.with_nullable(True) for field in columns if not field.name.startswith(_OWN)])
    if not own.names:
        raise SchemaError(f"the table at {location} has no column", expected="a table with columns")
    table = StoredTable(location, version.table, version.number)
    return Stream(name, own.remove_metadata(), static=True, table=table)


def change_to(relation: Stream) -> Change:
    """Return the change that makes queries read a stored relation as it is given."""
    return Change("relation", relation.name, stream=stream_to_json(relation))


def relation_of(change: Change) -> Stream:
    """Return the stored relation of a change; raise CheckpointError if the journal is damaged or of a later release."""
    try:
        return stream_from_json(change.stream or {})
    except (ValueError, TypeError, KeyError, pa.ArrowInvalid, OSError) as error:
        raise CheckpointError(
            f"the relation '{change.name}' in the journal of the queries cannot be read: {error}",
            expected="a relation that this release or an earlier one has written",
            hint="use the release that wrote it, or restore the folder queries/changes of the checkpoint",
        ) from error
