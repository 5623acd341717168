"""The offsets of a batch's sources, which Spark journals before the batch runs: a rerun reads the same."""

from __future__ import annotations

import json

from ...storage.folder import TableFolder

__all__ = ["journaled_offsets"]

_HEAD = 2
"""Lines before the offsets: the layout's version, and Spark's own settings."""


def journaled_offsets(checkpoint: TableFolder, batch: int) -> list[object]:
    """Return the end offset of each source that has one: parsed JSON, or its text if it is not JSON.

    Raises FileNotFoundError if the checkpoint has no such batch.
    """
    # Not remembered: a checkpoint that is removed and begun again has other offsets for the same numbers.
    lines = checkpoint.read(f"offsets/{batch}").decode().splitlines()[_HEAD:]
    return [_offset(line) for line in lines if line.strip() not in ("", "-")]


def _offset(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line
