"""Stored relations as the journal has them: a Delta table, its columns, and the version that queries read."""

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
    """Return a stored relation with the rows that a Delta table has now.

    Parameters
    ----------
    name : str
        The relation's name in queries.
    location : str
        The table's absolute folder, or its address.
    storage : mapping of str to str, optional
        Options of the object store, beside those of the environment. They are not in what is returned.

    Raises
    ------
    TableError
        There is no table, or it cannot be opened.
    SchemaError
        A column has a type that Spark does not have, or there is no column but UpStream's own.
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
    """Return the stored relation of a change.

    Raises
    ------
    CheckpointError
        The journal is damaged, or a later release wrote it.
    """
    try:
        return stream_from_json(change.stream or {})
    except (ValueError, TypeError, KeyError, pa.ArrowInvalid, OSError) as error:
        raise CheckpointError(
            f"the relation '{change.name}' in the journal of the queries cannot be read: {error}",
            expected="a relation that this release or an earlier one has written",
            hint="use the release that wrote it, or restore the folder queries/changes of the checkpoint",
        ) from error
