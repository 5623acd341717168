"""The name of a table's writer: a query by its checkpoint, a batch by its application."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from ...conf.errors import CheckpointError

if TYPE_CHECKING:
    from ...storage.folder import TableFolder
    from ..spec.options import SinkTarget

__all__ = ["read_query_id", "writer_id"]

_ON_DISK = (
    "give checkpointLocation as a path that the driver's machine can read; Spark takes one without file: before it for "
    "a place in its "
    "default file system (spark.hadoop.fs.defaultFS)"
)
_IN_STORE = (
    "give the store's options to the sink, as for a table there (storage.…; docs/readers.md): Spark's own "
    "spark.hadoop.fs.… do not reach it"
)


def read_query_id(checkpoint: TableFolder) -> str:
    """Return the id that Spark gave the query's checkpoint before its first batch."""
    try:
        return str(json.loads(checkpoint.read("metadata"))["id"])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise CheckpointError(
            f"the query's id cannot be read from {checkpoint.location}/metadata: {checkpoint.masked(error)}",
            expected="the metadata file that Spark writes when a query starts, readable beside the driver",
            hint=_ON_DISK if checkpoint.is_local else _IN_STORE,
        ) from (error if checkpoint.is_local else None)


def writer_id(target: SinkTarget) -> str:
    """Return the writer's name in summaries and transactions."""
    return read_query_id(target.checkpoint_folder) if target.application is None else target.application
