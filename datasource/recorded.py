"""The inferred schema, kept for the life of a checkpoint whose folder the source has been told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..conf.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["keep_schema", "recorded_schema"]

_FILE = "upstream-schema.json"


def recorded_schema(checkpoint: str | None) -> StructType | None:
    """The schema that the checkpoint's first run inferred; None if there is none.

    Raises
    ------
    CheckpointError
        The file that holds it cannot be read.
    """
    if checkpoint is None:
        return None
    path = _local(checkpoint) / _FILE
    if not path.exists():
        return None
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"the recorded schema {path} cannot be read: {error}", hint="restore the file, or give the option `schema`"
        ) from error


def keep_schema(checkpoint: str | None, schema: StructType) -> None:
    """Record the schema, atomically."""
    if checkpoint is None:
        return
    folder = _local(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f".{_FILE}.{os.getpid()}.tmp"
    staged.write_text(schema.json(), encoding="utf-8")
    os.replace(staged, folder / _FILE)


def _local(checkpoint: str) -> Path:
    if "://" in checkpoint and not checkpoint.startswith("file://"):
        raise CheckpointError(
            f"the source's checkpointLocation {checkpoint!r} is not a path of a mounted file system",
            hint="leave the option out for the source (not for the query), and give the option `schema`",
        )
    return Path(checkpoint.removeprefix("file://"))
