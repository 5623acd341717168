"""Files that exist as a whole or not at all, even if their writer is killed."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .folder import TableFolder, folder_at, sync_file, sync_paths

_STAGED = ".staged"
# A file unchanged for so long is from a killed writer. A twin of this writer may be active: Spark may run a task twice.
_LEFT_SECONDS = 3600


def write_whole(folder: str | TableFolder, name: str, write: Callable[[Any], object]) -> None:
    """Replace the file of that name atomically; `write` writes the content to an Arrow stream.

    A missing folder is created. Tasks that are retried must write the same. On a disk, unfinished files that killed
    writers of the same name left long ago are removed.
    """
    import pyarrow as pa

    place = folder_at(folder)
    if not place.is_local:
        # Whole before it is sent: a stream that an error closes would leave the part that was written.
        content = pa.BufferOutputStream()
        write(content)
        place.write(name, content.getvalue().to_pybytes())
        return
    # In a folder of its own, so that the search for leftovers is cheap, however many files there are beside it.
    staged = os.path.join(place.location, _STAGED)
    os.makedirs(staged, exist_ok=True)
    mine = Path(staged, f"{name}.{uuid.uuid4().hex}")  # process numbers are the same on several machines
    with pa.OSFile(str(mine), "wb") as stream:
        write(stream)
    if place.durable:
        sync_file(str(mine))
    now = mine.stat().st_mtime  # by the folder's clock, which need not be this machine's
    os.replace(mine, os.path.join(place.location, name))
    if place.durable:
        sync_paths(place.location, [name])
    for other in Path(staged).glob(f"{glob.escape(name)}.*"):
        with contextlib.suppress(FileNotFoundError):  # another attempt at the same task was quicker
            if other.name.rpartition(".")[0] == name and now - other.stat().st_mtime > _LEFT_SECONDS:
                other.unlink()
