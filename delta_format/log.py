"""A table's log, replayed entry by entry for the vectors and file actions that delta-rs does not expose."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import TableError
from ..storage.folder import TableFolder
from .column_mapping import kinds_in
from .deletion_vectors import DeletionVector

if TYPE_CHECKING:
    from deltalake import DeltaTable


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


def newest_version(folder: TableFolder) -> int | None:
    """Return the last version in a table's log; None without a log."""
    names = (name for name in folder.names(_LOG) if name.endswith(".json") and name[:-5].isdigit())
    return max((int(name[:-5]) for name in names), default=None)


_LISTED = re.compile(r"(\d{20})\.(?:json|(checkpoint)\..+)")


def check_log(folder: TableFolder) -> None:
    """Refuse a local log without its first entries, or with an entry that is a folder: delta-rs reads fewer rows."""
    if not folder.is_local:
        return
    entries: list[int] = []
    checkpoints: list[int] = []
    try:
        with os.scandir(os.path.join(folder.location, _LOG)) as listed:
            for each in listed:
                match = _LISTED.fullmatch(each.name)
                if match is None:
                    continue
                if not each.is_file() and os.path.exists(each.path):
                    raise _damaged(folder, f"{each.name} is no file")
                (checkpoints if match[2] else entries).append(int(match[1]))
    except OSError:
        return  # no log, which delta-rs reports
    first = min(entries, default=0)
    if first and max(checkpoints, default=-1) < first - 1:
        raise _damaged(folder, f"it begins with version {first}, and no checkpoint has the versions before")


def _damaged(folder: TableFolder, what: str) -> TableError:
    return TableError(
        f"the log of the table at {folder.location} is damaged: {what}",
        expected="a file for each version since the last checkpoint, or since version 0",
        hint="restore the file from a copy",
    )


def entry_actions(folder: TableFolder, version: int, kind: str = "") -> list[Action]:
    """Return the actions in a version's log entry, in order; with a `kind`, only from lines that contain it in quotes.

    A missing entry raises a FileNotFoundError, an incomplete one a ValueError.
    """
    marker = f'"{kind}"'.encode() if kind else b""
    lines = folder.read(entry_place(version)).splitlines()
    return [json.loads(line) for line in lines if marker in line and line.strip()]


def commit_infos(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of a loaded table's latest commits, newest first, each with its `version`.

    The log may be shorter than `limit`. On a disk, it is read directly: delta-rs misreads the last digit of some
    floats.
    """
    uri = urlsplit(table.table_uri)
    if uri.scheme != "file":
        return table.history(limit)
    return infos_to(TableFolder(unquote(uri.path)), table.version(), limit)


def infos_to(folder: TableFolder, version: int, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the `commitInfo` of the commits up to a version, as :func:`commit_infos` does, entry by entry."""
    found: list[dict[str, Any]] = []
    for each in range(version, -1 if limit is None else max(version - limit, -1), -1):
        try:
            info = commit_info(folder, each)
        except FileNotFoundError:  # the log has been trimmed
            break
        found += [] if info is None else [{**info, "version": each}]
    return found


def commit_info(folder: TableFolder, version: int) -> dict[str, Any] | None:
    """Return the `commitInfo` of a version, or None if it has none. Errors as of :func:`entry_actions`."""
    said = [action[_INFO] for action in entry_actions(folder, version, _INFO) if _INFO in action]
    return said[0] if said else None


class LogReplay:
    """The state of the log at one version, which is -1 before the first :meth:`follow`.

    `files` has the `add` action of each live file by its path; `transactions` has the last one of each application.
    With `transactions_only`, which is cheaper for a large table, all else remains empty.
    """

    def __init__(self, folder: TableFolder, *, transactions_only: bool = False) -> None:
        self._folder = folder
        self._transactions_only = transactions_only
        self._start()

    def follow(self, version: int) -> None:
        """Read the log up to a version; entries that were read before are not read again.

        A missing entry, or an unreadable checkpoint in its place, raises a TableError.
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
        """Apply the actions of the next version, which this process has just committed, without reading them."""
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
        """Apply the last checkpoint up to a version, if the log has a complete one in the classic form."""
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
    """Return a checkpoint's action in the form of a log entry: Parquet has pairs for maps, and nulls."""
    found: Action = {}
    for name, value in action.items():
        if value is None or name.endswith("_parsed"):
            continue
        if isinstance(value, dict):
            found[name] = _plain(value)
        else:
            found[name] = dict(value) if name in _MAPS else value
    return found


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """The data files, as parallel lists."""

    paths: list[str]  # relative to the table
    sizes: list[int]  # in bytes
    rows: list[int | None]  # counts that include dead rows; None where the log has none
    modified_ms: list[int]  # milliseconds since the epoch
    _actions: pa.Table

    @classmethod
    def of(cls, table: DeltaTable) -> LiveFiles:
        # pa.table would do the same, and import pandas to find out that this is not a data frame.
        actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
        paths = [unquote(path) for path in actions.column("path").to_pylist()]
        counted = "num_records" in actions.column_names
        rows: list[int | None] = actions.column("num_records").to_pylist() if counted else [None] * len(paths)
        modified = actions.column("modification_time").cast(pa.int64()).to_pylist()
        return cls(paths, actions.column("size_bytes").to_pylist(), rows, modified, actions)

    def partition(self, name: str) -> list[Any]:
        """Return each file's value of a partition column."""
        return self._actions.column("partition").combine_chunks().field(name).to_pylist()


def has_early_times(table: DeltaTable, schema: Any) -> bool:
    """Return whether the log proves that times of a loaded table are in the years 1900 to 2261, and dates not earlier.

    Spark writes times in nanoseconds, and many readers misread times beyond those years. Days of old files may be
    those of another calendar. The table has no column mapping.
    """
    divided = table.metadata().partition_columns  # of these the log has the values themselves
    paths = list(_times_in({"fields": [field for field in schema["fields"] if field["name"] not in divided]}))
    if not paths:
        return True
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if not {"num_records", *(f"{kind}.{path}" for path in paths for kind in _STATS)} <= set(actions.column_names):
        return len(actions) == 0
    return all(_is_early(actions, path) for path in paths)


_STATS = ("min", "max", "null_count")
_EARLIEST, _LATEST = (dt.datetime(year, 1, 1, tzinfo=dt.timezone.utc) for year in (1900, 2262))


def _is_early(actions: pa.Table, path: str) -> bool:
    low, high, nulls = (actions.column(f"{kind}.{path}") for kind in _STATS)
    if pa.types.is_date32(low.type):
        within = pc.greater_equal(low, pa.scalar(_EARLIEST.date(), low.type))
    elif pa.types.is_timestamp(low.type):
        within = pc.and_(
            pc.greater_equal(low, pa.scalar(_EARLIEST, low.type)), pc.less(high, pa.scalar(_LATEST, low.type))
        )
    else:
        return False
    known = pc.or_kleene(within, pc.equal(nulls, actions.column("num_records")))
    return pc.all(known, skip_nulls=False).as_py() is True


_TIMES = frozenset({"timestamp", "date"})


def _times_in(kind: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of times in a struct, and of lists and maps with times, which have no statistics."""
    for field in kind["fields"]:
        inner, where = field["type"], f"{path}{field['name']}"
        if isinstance(inner, dict) and inner["type"] == "struct":
            yield from _times_in(inner, f"{where}.")
        elif not _TIMES.isdisjoint(kinds_in(inner)):
            yield where
