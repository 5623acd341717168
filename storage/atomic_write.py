"""Files that are there whole or not at all, however the process ends that writes them."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .durable import sync_file, sync_paths
from .folder import TableFolder, folder_at

__all__ = ["write_whole"]

_STAGED = ".staged"
# What nobody has written to for so long was left by a writer that was killed. A twin of this writer (Spark runs a task
# twice) may be at work now.
_LEFT_SECONDS = 3600


def write_whole(folder: str | TableFolder, name: str, write: Callable[[Any], object]) -> None:
    """Replace the last file of that name by a new one, as a whole.

    On a disk, the function then removes unfinished files that killed writers of the same name left long ago, so that
    these cannot gather for years.

    What earlier writers of the same name left unfinished when they were killed is taken away, so that it cannot gather
    for years.

    Parameters
    ----------
    folder
        A folder, or the address of one. Made if it is not there.
    name : str
    write : callable
        Writes the contents to a stream of Arrow's. Tasks that are tried again must write the same.
    """
    import pyarrow as pa

    place = folder_at(folder)
    if not place.is_local:
        # Whole before it is sent: a stream that an error closes would leave the part that was written.
        content = pa.BufferOutputStream()
        write(content)
        place.write(name, content.getvalue().to_pybytes())
        return
    # In a folder of its own: to look for what was left is then cheap, however many files there are beside.
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
