"""Files that exist as a whole or not at all, and lists and series that only grow, even if their writer is killed."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..conf.errors import CheckpointError, pip_install
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


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a user's file, or the one that a link names, as a whole and on the disk; keep its rights."""
    target = os.path.realpath(path)
    handle, written = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target))
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(target, written)
        os.replace(written, target)
    except BaseException:
        os.remove(written)
        raise
    sync_file(os.path.dirname(target))


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


class NumberedFiles:
    """Changes of a checkpoint, one a file, numbered from 1 without gaps. The newest number is the version.

    Guarantee: a version is written once. If several processes write, each file is one process's, whole, and on the disk
    before :meth:`put` returns. A version is only put after the one before it. `what` names the content in errors, such
    as "the queries".
    """

    def __init__(self, folder: TableFolder, below: str, what: str) -> None:
        self.folder = folder
        self._below = below
        self._what = what
        self._known = 0

    def version(self) -> int:
        """Return the number of the newest file, 0 if there is none. Only the first call lists the folder."""
        if not self._known:
            self._known = max((_number(each) for each in self.folder.names(self._below)), default=0)
        if self._known:
            with self.folder.guarded():
                while self.folder.has(self._place(self._known + 1)):
                    self._known += 1
        return self._known

    def read(self, versions: Iterable[int]) -> list[bytes]:
        """Return files by number, in the given order; raise CheckpointError if one is missing."""
        with self.folder.guarded():
            return self.folder.each(self._read, versions)

    def times_us(self) -> dict[int, int]:
        """Return when each file was written, by number, in microseconds since the epoch."""
        with self.folder.guarded():
            found = {_number(each.name): each.modified_us for each in self.folder.listing(self._below)}
        return {number: at_us for number, at_us in found.items() if number}

    def put(self, version: int, content: bytes) -> bool:
        """Write the file after the newest; return False if another process has written this version.

        The content must include a unique id. Raises CheckpointError if the checkpoint is not writable. Raises
        EnvironmentMissingError or TableError if its object store cannot refuse to overwrite.
        """
        with self.folder.guarded():
            refusal = self.folder.puts_refused()
            if refusal is not None:
                raise type(refusal)(
                    f"{self._what} of {self.folder.location} cannot be changed: {refusal.problem}",
                    expected="a store that refuses a second object of one name: of two changes at once one comes later",
                    hint=f"run `{pip_install('stores')}` wherever they are changed, and give the store's "
                    "credentials in the environment; or keep the checkpoint on a disk",
                )
            try:
                self.make()
                return self.folder.put_new(self._place(version), content)
            except OSError as error:
                raise self.unwritable(error) from error

    def unwritable(self, error: OSError) -> CheckpointError:
        """Return the error of a checkpoint that takes no change."""
        top = self._below.split("/")[0]
        return CheckpointError(
            f"{self._what} of {self.folder.location} cannot be changed: {self.folder.masked(error)}",
            expected=f"room in {self.folder.location}/{top}, and permission to write there",
            hint="make room or put the permission right, and repeat the call. Nothing has changed",
        )

    def _read(self, version: int) -> bytes:
        try:
            return self.folder.read(self._place(version))
        except FileNotFoundError as error:
            raise CheckpointError(
                f"the checkpoint has no change {version} of {self._what}",
                expected=f"all files of {self.folder.location}/{self._below}",
                hint="restore the file; a checkpoint is copied as a whole",
            ) from error

    def make(self) -> None:
        """Create the folder, as :meth:`put` does."""
        place = os.path.join(self.folder.location, self._below)
        if not self.folder.is_local or os.path.isdir(place):
            return
        os.makedirs(place, exist_ok=True)
        # The folders' own entries; put_new syncs those of its files.
        self.folder.sync([f"{self._below}/."])

    def _place(self, version: int) -> str:
        return f"{self._below}/{version:020d}.json"


def _number(name: str) -> int:
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "json" and stem.isdigit() else 0
