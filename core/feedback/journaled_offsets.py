"""The offsets of a batch's sources, as Spark journals them before the batch runs: with them, whatever runs in the batch
can read what it was planned with, and a batch that runs again reads the same.
"""

from __future__ import annotations

import json

from ...storage.folder import TableFolder

__all__ = ["journaled_offsets"]

_HEAD = 2
"""Lines before the offsets: the layout's version, and Spark's own settings."""


def journaled_offsets(checkpoint: TableFolder, batch: int) -> list[object]:
    """Return the offset up to which a batch reads each source that has one.

    Parameters
    ----------
    checkpoint
        The query's.
    batch
        Its number.

    Returns
    -------
    list of object
        Offsets from JSON; the text of one that is none.

    Raises
    ------
    FileNotFoundError
        The checkpoint has no such batch.
    """
    # Not remembered: a checkpoint that is removed and begun again has other offsets for the same numbers.
    lines = checkpoint.read(f"offsets/{batch}").decode().splitlines()[_HEAD:]
    return [_offset(line) for line in lines if line.strip() not in ("", "-")]


def _offset(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line
