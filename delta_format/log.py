"""A table's log, followed entry by entry: the actions of its live files as they were written, and its protocol and
metadata.

delta-rs says which files are live, but not by which vectors some of their rows are dead, nor what an entry that marks
more of them has to repeat of the file. Both are read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..conf.errors import TableError
from ..storage.folder import TableFolder
from .deletion_vectors import DeletionVector

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["LogReplay", "commit_info", "commit_infos", "entry_actions", "entry_place"]

Action = dict[str, Any]

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_LOG = "_delta_log"
# In an object store so many entries are read at once.
_AHEAD = 32
_TRANSACTION = "txn"
_INFO = "commitInfo"
_MAPS = ("partitionValues", "configuration", "tags", "options")


def entry_place(version: int) -> str:
    """Return the path of a version's log entry, relative to the table."""
    return f"{_LOG}/{version:020d}.json"


def entry_actions(folder: TableFolder, version: int, kind: str = "") -> list[Action]:
    """Return the actions in a version's log entry, in the order of its lines.

    Parameters
    ----------
    folder, version
        The table's folder, and the version.
    kind
        Parse only lines that contain this word in quotes; all lines by default.

    Raises
    ------
    FileNotFoundError
        The log has no such entry.
    ValueError
        The entry is not whole.
    """
    marker = f'"{kind}"'.encode() if kind else b""
    lines = folder.read(entry_place(version)).splitlines()
    return [json.loads(line) for line in lines if marker in line and line.strip()]


def commit_infos(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of a loaded table's latest commits, newest first, each with its `version`.

    The list goes back as far as the log. For a table on a disk, numbers are exactly those in the log: delta-rs misreads
    the last digit of some floats.

    Parameters
    ----------
    table
        At some version.
    limit
        The most commits; all by default.
    """
    uri = urlsplit(table.table_uri)
    if uri.scheme != "file":
        return table.history(limit)
    folder = TableFolder(unquote(uri.path))
    found: list[dict[str, Any]] = []
    least = -1 if limit is None else max(table.version() - limit, -1)
    for version in range(table.version(), least, -1):
        try:
            info = commit_info(folder, version)
        except FileNotFoundError:  # the log has been trimmed
            break
        found += [] if info is None else [{**info, "version": version}]
    return found


def commit_info(folder: TableFolder, version: int) -> dict[str, Any] | None:
    """Return the `commitInfo` of a version, or None if it has none. Errors as of :func:`entry_actions`."""
    said = [action[_INFO] for action in entry_actions(folder, version, _INFO) if _INFO in action]
    return said[0] if said else None


class LogReplay:
    """What the log comes to at one version.

    Parameters
    ----------
    folder
        The table's.
    transactions_only
        Leaves out the rest, of which a large table has much: `files`, `protocol` and `metadata` are then empty.

    Attributes
    ----------
    version : int
        -1 before the first :meth:`follow`.
    files : dict of str to dict
        The `add` action of each live file, by its path.
    protocol, metadata : dict
        The latest actions of these kinds.
    transactions : dict of str to int
        The last one of each application.
    """

    def __init__(self, folder: TableFolder, *, transactions_only: bool = False) -> None:
        self._folder = folder
        self._transactions_only = transactions_only
        self._start()

    def follow(self, version: int) -> None:
        """Follow the log up to a version; entries that are read already are not read again.

        Raises
        ------
        TableError
            An entry is gone, or the checkpoint in its place cannot be read.
        """
        if version < self.version:
            self._start()
        if self.version == -1 and version > 0:
            self._begin(version)
        while self.version < version:
            ahead = range(self.version + 1, min(version, self.version + _AHEAD) + 1)
            for actions in self._folder.each(self._entry, ahead):
                self._take(actions)
                self.version += 1

    def advance(self, actions: list[Action]) -> None:
        """Take the actions of the next version, which this process has just committed, without reading them again."""
        self._take(actions)
        self.version += 1

    def vectors(self) -> dict[str, DeletionVector]:
        """Return the deletion vector of each file that has one, by the file's path."""
        return {
            path: DeletionVector.from_json(add["deletionVector"])
            for path, add in self.files.items()
            if add.get("deletionVector")
        }

    def _start(self) -> None:
        self.version = -1
        self.files: dict[str, Action] = {}
        self.protocol: Action = {}
        self.metadata: Action = {}
        self.transactions: dict[str, int] = {}

    def _take(self, actions: list[Action]) -> None:
        for action in actions:
            if "remove" in action:
                self.files.pop(unquote(action["remove"]["path"]), None)
        # One entry may take a file away and bring it back with another vector, in any order of its lines.
        for action in actions:
            if "add" in action:
                self.files[unquote(action["add"]["path"])] = action["add"]
            self.protocol = action.get("protocol", self.protocol)
            self.metadata = action.get("metaData", self.metadata)
            if _TRANSACTION in action:
                self.transactions[action[_TRANSACTION]["appId"]] = action[_TRANSACTION]["version"]

    def _entry(self, version: int) -> list[Action]:
        try:
            return entry_actions(self._folder, version, _TRANSACTION if self._transactions_only else "")
        except FileNotFoundError as error:
            raise self._broken(f"the entry of version {version} is gone") from error
        except ValueError as error:
            raise self._broken(f"the entry of version {version} cannot be read ({error})") from error

    def _begin(self, version: int) -> None:
        """Take the last checkpoint up to a version, if the log has one that is laid out in the plain way."""
        found: dict[int, dict[str, int]] = {}
        for name in self._folder.names(_LOG):
            match = _CHECKPOINT.fullmatch(name)
            if match is not None and int(match.group(1)) <= version:
                found.setdefault(int(match.group(1)), {})[name] = int(match.group(3) or 1)
        whole = [number for number, parts in found.items() if len(parts) >= max(parts.values())]
        if not whole:
            return
        number = max(whole)
        for name in sorted(found[number]):
            self._take(self._checkpoint(name))
        self.version = number

    def _checkpoint(self, name: str) -> list[Action]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        where, filesystem = self._folder.place(f"{_LOG}/{name}")
        kinds = (_TRANSACTION,) if self._transactions_only else ("add", "protocol", "metaData", _TRANSACTION)
        try:
            with pq.ParquetFile(where, filesystem=filesystem) as file:
                if "sidecar" in file.schema_arrow.names:
                    sidecars = file.read(columns=["sidecar"]).column("sidecar")
                    if sidecars.null_count < len(sidecars):
                        raise self._broken(f"the checkpoint {name} refers to further files")
                rows = file.read(columns=[kind for kind in kinds if kind in file.schema_arrow.names]).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise self._broken(f"the checkpoint {name} cannot be read ({error})") from error
        return [{kind: _plain(value)} for row in rows for kind, value in row.items() if value is not None]

    def _broken(self, what: str) -> TableError:
        return TableError(
            f"the log of the table at {self._folder.location} cannot be followed: {what}",
            expected="a log without gaps, with checkpoints in the classic form",
            hint="restore the log from a backup; if the table uses the feature v2Checkpoint, drop that feature from "
            "Spark, "
            "or write with engine=rewrite",
        )


def _plain(action: Mapping[str, Any]) -> Action:
    """Return a checkpoint's action as a log entry has it: Parquet has pairs for maps, and null for what is absent."""
    found: Action = {}
    for name, value in action.items():
        if value is None or name.endswith("_parsed"):
            continue
        if isinstance(value, dict):
            found[name] = _plain(value)
        else:
            found[name] = dict(value) if name in _MAPS else value
    return found
