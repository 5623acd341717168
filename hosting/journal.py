"""The journal of a registry: one small file per change, below the checkpoint."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

from ..conf.errors import CheckpointError
from ..conf.locations import checkpoint_location
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder
from .changes import Change, Settings

_FOLDER = "queries"
_CHANGES = "queries/changes"
_SETTINGS = "streams.json"


class Journal:
    """The changes of a registry, numbered from 1 without gaps. The newest number is the registry's version.

    Guarantee: a version is written once. If several processes write, each file is one process's, whole, and on the disk
    before :meth:`put` returns. A version is only put after the one before it.
    """

    def __init__(self, checkpoint: str) -> None:
        self._folder = TableFolder(checkpoint_location(checkpoint), durable=True)
        self._known = 0

    @property
    def location(self) -> str:
        return self._folder.location

    @property
    def is_local(self) -> bool:
        """True on a disk, where looking for changes is cheap."""
        return self._folder.is_local

    def version(self) -> int:
        """Return the number of the newest change; 0 if there is none.

        The first call lists the folder. Later calls only look for the next numbers.
        """
        if not self._known:
            self._known = max((_number(each) for each in self._folder.names(_CHANGES)), default=0)
        if self._known:
            with self._folder.guarded():
                while self._folder.has(_place(self._known + 1)):
                    self._known += 1
        return self._known

    def read(self, versions: Iterable[int]) -> list[Change]:
        """Return changes by number, in the given order; raise CheckpointError if one is missing or damaged."""
        with self._folder.guarded():
            return self._folder.each(self._read, versions)

    def put(self, version: int, change: Change) -> bool:
        """Write a change under the number after the newest; return False if another process has written this version.

        Raises CheckpointError if the checkpoint is not writable. Raises EnvironmentMissingError or TableError if its
        object store cannot refuse to overwrite.
        """
        place = _place(version)
        with self._folder.guarded():
            refusal = self._folder.puts_refused()
            if refusal is not None:
                raise type(refusal)(
                    f"the queries of {self.location} cannot be changed: {refusal.problem}",
                    expected="a store that refuses a second object of one name: of two changes at once one comes later",
                    hint="pip install 'pyspark-upstream[stores]' wherever queries are changed, and give the store's "
                    "credentials in the environment; or keep the checkpoint on a disk",
                )
            try:
                self._make()
                return self._folder.put_new(place, change.to_json())
            except OSError as error:
                raise self._unwritable(error) from error

    def settings(self) -> Settings | None:
        """Return the shared settings; None before any are written."""
        with self._folder.guarded(), contextlib.suppress(FileNotFoundError):
            return Settings.from_json(self._folder.read(f"{_FOLDER}/{_SETTINGS}"))
        return None

    def write_settings(self, settings: Settings) -> None:
        """Replace the shared settings; raise CheckpointError if the job has run, which fixes them."""
        if self.started():
            raise CheckpointError(
                "the streams of a checkpoint are fixed once its job has run",
                expected="the streams, the folder of tables and the shards of the first run",
                hint="begin a new checkpoint for other streams; queries may come and go",
            )
        content = settings.to_json()

        def write(stream: Any) -> None:
            stream.write(content)

        with self._folder.guarded():
            try:
                self._make()
                write_whole(self._folder.below(_FOLDER), _SETTINGS, write)
            except OSError as error:
                raise self._unwritable(error) from error

    def started(self) -> bool:
        """Return whether the job has planned a batch."""
        with self._folder.guarded():
            return any(not each.startswith(".") for each in self._folder.names("offsets"))

    def _read(self, version: int) -> Change:
        try:
            return Change.from_json(self._folder.read(_place(version)))
        except FileNotFoundError as error:
            raise CheckpointError(
                f"the checkpoint has no change {version} of its queries",
                expected=f"all files of {self.location}/{_CHANGES}",
                hint="restore the file; a checkpoint is copied as a whole",
            ) from error

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the queries of {self.location} cannot be changed: {self._folder.masked(error)}",
            expected=f"room in {self.location}/{_FOLDER}, and permission to write there",
            hint="make room or put the permission right, and repeat the call. Nothing has changed",
        )

    def _make(self) -> None:
        changes = os.path.join(self._folder.location, _CHANGES)
        if not self._folder.is_local or os.path.isdir(changes):
            return
        os.makedirs(changes, exist_ok=True)
        # The folders' own entries; put_new syncs those of its files.
        self._folder.sync([f"{_CHANGES}/."])


def _place(version: int) -> str:
    return f"{_CHANGES}/{version:020d}.json"


def _number(name: str) -> int:
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "json" and stem.isdigit() else 0
