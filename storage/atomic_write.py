"""Files that exist as a whole or not at all, and lists that only grow, even if their writer is killed."""

from __future__ import annotations

import contextlib
import glob
import os
import uuid
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..conf.errors import CheckpointError
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


def append_to(folder: str, reference: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Append data to a list below a checkpoint, and sync it to disk; return the reference to the longer list.

    A reference has the file's name (``list``), length (``bytes``) and checksum (``crc``); an empty one begins a list.
    Data beyond its length belongs to an offset that Spark never journaled, and is overwritten.
    """
    length, crc = reference.get("bytes", 0), reference.get("crc", 0)
    name = reference.get("list") or _new_list(folder)
    with open(os.path.join(folder, name), "r+b") as file:
        file.truncate(length)
        file.seek(length)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"list": name, "bytes": length + len(data), "crc": zlib.crc32(data, crc)}


def read_appended(folder: str, reference: Mapping[str, Any]) -> bytes:
    """Return the list of a reference; a missing or different file raises a CheckpointError."""
    path = os.path.join(folder, reference["list"])
    try:
        with open(path, "rb") as file:
            kept = file.read(reference["bytes"])
    except OSError as error:
        raise CheckpointError(f"a list of the checkpoint cannot be read: {error}", hint=f"restore {path}") from error
    if len(kept) != reference["bytes"] or zlib.crc32(kept) != reference["crc"]:
        raise CheckpointError(
            f"the list {path} is not the one that the checkpoint refers to",
            expected=f"{reference['bytes']} bytes with checksum {reference['crc']}",
            hint="restore it, or start with a new checkpoint",
        )
    return kept


def _new_list(folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    number = 1 + max((int(name[:8]) for name in os.listdir(folder) if name[:8].isdigit()), default=0)
    while True:
        name = f"{number:08d}.jsonl"
        try:
            with open(os.path.join(folder, name), "xb"):
                pass
        except FileExistsError:  # another source of the same query
            number += 1
            continue
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return name
