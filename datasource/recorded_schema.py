"""The inferred schema of each source, kept for the life of the checkpoint if the source has its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..conf.errors import CheckpointError
from ..core.feedback.checkpoint_layout import OWN_SCHEMA, SHARED_SCHEMA
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["keep_schema", "recorded_schema", "schema_name"]

# Where rows come from, and what becomes of their time. The rest may change while a checkpoint lives.
_NAMING = (
    "connector",
    "path",
    "paths",
    "pathglobfilter",
    "subscribe",
    "subscribepattern",
    "assign",
    "time",
    "progress",
    "select",
    "selectduplicates",
)


def schema_name(given: Mapping[str, str]) -> str:
    """Return the name of a source's record, which distinguishes it from the query's other sources."""
    lowered = {name.lower(): value for name, value in given.items()}
    named = [[name, lowered[name]] for name in _NAMING if name in lowered]
    return f"{OWN_SCHEMA}{hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16]}.json"


def recorded_schema(checkpoint: TableFolder | None, name: str) -> StructType | None:
    """Return the schema that a source's first run inferred; None if there is none.

    A record of an earlier release belongs to the source that first reads one. Raise CheckpointError if it is
    unreadable.
    """
    if checkpoint is None:
        return None
    from pyspark.sql.types import StructType

    try:
        with checkpoint.guarded():
            kept = _read(checkpoint, name) or _adopted(checkpoint, name)
        if kept is None:
            return None
        return StructType.fromJson(json.loads(kept))
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the recorded schema {checkpoint.location}/{name} cannot be read: {error}",
            hint="restore the file, or give the option `schema`",
        ) from error


def keep_schema(checkpoint: TableFolder | None, name: str, schema: StructType) -> None:
    """Record a source's schema, atomically."""
    if checkpoint is not None:
        with checkpoint.guarded():
            write_whole(checkpoint, name, lambda stream: stream.write(schema.json().encode()))


def _read(checkpoint: TableFolder, name: str) -> bytes | None:
    try:
        return checkpoint.read(name)
    except FileNotFoundError:
        return None


def _adopted(checkpoint: TableFolder, name: str) -> bytes | None:
    """Give this source the record of an earlier release, shared by all sources, unless another source has taken it."""
    shared = _read(checkpoint, SHARED_SCHEMA)
    if shared is None:
        return None
    owned = [each for each in checkpoint.names("") if each.startswith(OWN_SCHEMA)]
    mine = shared not in checkpoint.each(checkpoint.read, owned)
    if mine:
        write_whole(checkpoint, name, lambda stream: stream.write(shared))
    checkpoint.remove([SHARED_SCHEMA])
    return shared if mine else None
