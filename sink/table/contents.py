"""A stored table for commands: its layout, files and their contents, and the row counts that commits record."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from ...conf.errors import TableError
from ...conf.locations import absolute_location
from ...conf.units import now_us
from ...delta_format.deletion_vectors import COPIES, VECTORS, DeletionVector, copy_of
from ...delta_format.latest_table import BUCKET, METADATA_KEY, CommitChanges, recorded_under
from ...delta_format.log import LiveFiles, commit_infos, entry_actions
from ...storage.folder import TableFolder, is_inside
from ..spec.layout import Layout
from ..spec.options import STORAGE_PREFIX, SinkTarget, parse_sink_options
from .files import DataFiles
from .table import Snapshot, load_table, take_snapshot
from .tombstones import DELETIONS, FOLDER, tombstone_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from .table import TableChange


# A Parquet file ends with the length of its footer and four letters.
_END = 8


@dataclasses.dataclass(frozen=True)
class Unreadable(Exception):  # noqa: N818 it is what was found, not an error of ours
    """A file that cannot be read."""

    path: str  # relative to the table
    reason: str
    proven: bool = True  # True if a second look found it missing, or its size or footer wrong


def recorded_layout(path: str, storage: Mapping[str, str]) -> tuple[SinkTarget, DeltaTable, Layout]:
    """Return a table at its latest version and its recorded layout, without a look at its data files."""
    given = {"path": path, "key": "?"} | {STORAGE_PREFIX + name: value for name, value in storage.items()}
    target = parse_sink_options(given, started=False)
    table = load_table(target)
    if table is None:
        raise TableError(
            f"there is no table at {target.location}",
            expected="a folder or an address that holds one",
            hint="check the path",
        )
    return target, table, Layout.recorded(table, target.location)


@dataclasses.dataclass(frozen=True)
class TableContents:
    """One version of a table, to be read file by file."""

    target: SinkTarget
    table: DeltaTable
    layout: Layout
    snapshot: Snapshot
    files: DataFiles
    tombstones: DataFiles  # the files of its deletions
    sizes: Mapping[str, int]  # bytes of each data file by the log

    @classmethod
    def of(cls, path: str, storage: Mapping[str, str]) -> TableContents:
        target, table, layout = recorded_layout(path, storage)
        files = DataFiles(target, layout.file_schema())
        snapshot = take_snapshot(table, files, target)
        live = LiveFiles.of(table)
        sizes = dict(zip(live.paths, live.sizes, strict=True))
        return cls(target, table, layout, snapshot, files, tombstone_files(target, layout, files.schema), sizes)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str, storage: Mapping[str, str] | None) -> Generator[TableContents]:
        """Yield the table at its latest version; errors that leave the block show no secret of an object store."""
        given = storage or {}
        with TableFolder(absolute_location(path), given).guarded():
            yield cls.of(path, given)

    @contextlib.contextmanager
    def needed(self) -> Generator[None]:
        """Raise a TableError if a file that is read in the block is unreadable."""
        try:
            yield
        except Unreadable as error:
            raise TableError(
                f"the file {error.path} of the table at {self.target.location} cannot be read: {error.reason}",
                expected="a table that `upstream check` finds right",
                hint=f"run `upstream repair {self.target.location}` first",
            ) from None

    @property
    def buckets(self) -> list[int]:
        """Return all buckets that the layout has, and any others that files name."""
        return sorted({*range(self.layout.buckets), *self.snapshot.files})

    def rows(self, path: str) -> pa.Table:
        """Return a data file's live rows; raise Unreadable if it is gone, damaged, or differs from the log."""
        return self._read(self.files, path, self.files.schema.names)

    def deciding(self, path: str) -> pa.Table:
        """Return the deciding columns of a data file; read the others too, to test that they are readable."""
        return self._read(self.files, path, self.layout.deciding)

    def buried(self, bucket: int) -> pa.Table:
        """Return the tombstones of a bucket, with the deciding columns."""
        path = self.snapshot.tombstones.paths.get(bucket)
        if path is None:
            return pa.schema([self.files.schema.field(name) for name in self.layout.deciding]).empty_table()
        return self._read(self.tombstones, path, self.layout.deciding)

    def _read(self, files: DataFiles, path: str, columns: list[str]) -> pa.Table:
        try:
            reader = files.open([path], [self.snapshot.vectors.get(path)])
            try:
                kept = reader.read(columns)
                for name in files.schema.names:
                    if name not in columns:
                        reader.read([name])
            finally:
                reader.close()
        except (OSError, pa.ArrowException, TableError) as error:
            raise self._second_look(path) or Unreadable(path, _first_line(error), proven=False) from error
        counted, size = self.snapshot.rows.get(path), self.sizes.get(path)
        if (counted is not None and reader.rows != counted) or (size is not None and files.size(path) != size):
            raise self._second_look(path) or Unreadable(path, "it changes while it is read", proven=False)
        return kept

    def _second_look(self, path: str) -> Unreadable | None:
        """Return the provable damage of a file; None if there is none, or if it cannot be determined.

        Arrow has the same errors for a damaged file, a store that refuses, and a process with too many open files.
        So the bytes are read first, and only then examined.
        """
        import pyarrow.parquet as pq

        folder = self.target.folder
        size, counted = self.sizes.get(path), self.snapshot.rows.get(path)
        if not is_inside(path):
            why = "it is in the folder of another table, of which this one is a shallow clone"
            return Unreadable(path, why, proven=False)
        try:
            found = self.files.size(path)
            if size is not None and found != size:
                return Unreadable(path, f"it has {found} bytes, and the log says {size}")
            end = folder.read_range(path, max(found - _END, 0), min(found, _END))
            length = int.from_bytes(end[:4], "little") + _END
            if len(end) < _END or end[4:] != b"PAR1" or length > found:
                return Unreadable(path, "it does not end as a Parquet file does")
            footer = folder.read_range(path, found - length, length)
        except FileNotFoundError:
            return Unreadable(path, "it is not there")
        except (OSError, pa.ArrowException):
            return None
        if len(footer) != length:
            return None
        try:
            rows = pq.read_metadata(pa.BufferReader(footer)).num_rows
        except (OSError, pa.ArrowException) as error:
            return Unreadable(path, f"its footer cannot be read: {_first_line(error)}")
        if counted is not None and rows != counted:
            return Unreadable(path, f"it has {rows} rows, and the log says {counted}")
        return None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


LOG = "_delta_log"

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN = re.compile(
    rf"(?:{DELETIONS}|{FOLDER})?(?:{BUCKET}=[^/]+/)?part-{_UUID}\.parquet"
    rf"|{FOLDER}(?:{BUCKET}=[^/]+/)?\d+\.json"
    rf"|(?:(?:{VECTORS}|{COPIES})/)?deletion_vector_{_UUID}\.bin"
    rf"|_upstream_lease/(?:\d{{20}}\.json|\.staged/\d{{20}}\.json\.[0-9a-f]{{32}}|\.{_UUID}\.tmp)"
    rf"|{LOG}/(?:\.{_UUID}\.tmp|_commit_{_UUID}\.json\.tmp|_upstream_dropped)"
)
LOG_FILE = re.compile(
    rf"{LOG}/(?:\.?\d{{20}}\.[^/]+|_last_checkpoint|\._last_checkpoint\.crc|_sidecars/[^/]+\.parquet)"
)
"""The names that Delta gives to files of a log."""


def is_own(path: str) -> bool:
    """Return True if a path below the table has a name that only UpStream gives, as files of dead processes."""
    return _OWN.fullmatch(path) is not None


def every_file(folder: TableFolder, below: str = "") -> Iterator[str]:
    """Yield all files below a folder, without following links; raise NotADirectoryError if it is a file."""
    if not folder.is_local:
        for each in folder.listing(below):
            path = f"{below}/{each.name}" if below else each.name
            if each.is_folder:
                yield from every_file(folder, path)
            else:
                yield path
        return
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder.location, below)) as entries:
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from every_file(folder, path)
            else:
                yield path


def check_free(folder: TableFolder) -> None:
    """Refuse a folder without a table in which there are other files than ours."""
    try:
        other = next((path for path in every_file(folder) if not is_own(path)), None)
    except NotADirectoryError:
        other = ""
    if other is not None:
        raise TableError(
            f"there is no table at {folder.location}, and the folder has a file already: {other}"
            if other
            else f"there is a file at {folder.location}, not a folder",
            expected="a folder that is empty or does not exist: readers would take other files for the table's, and "
            "maintenance deletes files",
            hint="choose another folder, or move the files away",
        )


def files_in_log(folder: TableFolder) -> set[str]:
    """Return the files below the table that its log's entries or checkpoints name, as far as they are readable."""
    found: set[str] = set()
    for name in folder.names(LOG):
        number, _, ending = name.partition(".")
        if not number.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ValueError, OSError):
            actions = (
                entry_actions(folder, int(number)) if ending == "json" else _of_checkpoint(folder, f"{LOG}/{name}")
            )
            for action in actions:
                found |= _named(action)
    return {path for path in found if not path.startswith("/") and "://" not in path and ".." not in path.split("/")}


def _of_checkpoint(folder: TableFolder, path: str) -> list[dict[str, Any]]:
    if not path.endswith(".parquet"):
        return []
    import pyarrow.parquet as pq

    where, filesystem = folder.place(path)
    with pq.ParquetFile(where, filesystem=filesystem) as file:
        kinds = [kind for kind in ("add", "remove") if kind in file.schema_arrow.names]
        return file.read(columns=kinds).to_pylist()


def _named(action: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for kind in ("add", "remove", "cdc"):
        if file := action.get(kind):
            found.add(unquote(file["path"]))
            vector = file.get("deletionVector")
            if vector and (place := DeletionVector.from_json(vector).path):
                found |= {place, copy_of(place)}
    if (info := action.get("commitInfo")) and (applied := CommitChanges.of_commit(info)):
        found |= set(applied.deletions)
    return found


REPAIR_KEY = "upstreamRepair"
"""Where the commit of a command has what it did, and how many rows the table has after it."""

_LOOK_BACK = 256


class RowCount(NamedTuple):
    """The row count that a commit records."""

    version: int
    rows: int
    since: str  # the operations of the later commits, which recorded none


def rows_recorded(table: DeltaTable) -> RowCount | None:
    """Return the latest row count in the last 256 commits; None if none has one."""
    operations: list[str] = []
    for entry in commit_infos(table, _LOOK_BACK):
        rows = _rows_of(entry)
        if rows is not None:
            return RowCount(int(entry["version"]), rows, ", ".join(dict.fromkeys(operations)))
        operations.append(str(entry.get("operation", "unknown")))
    return None


def nothing_since(table: DeltaTable) -> CommitChanges:
    """Return the delivery record of a commit that changes no row: the last low-watermark again."""
    applied = (CommitChanges.of_commit(entry) for entry in commit_infos(table, _LOOK_BACK))
    last = next((found for found in applied if found is not None), CommitChanges(0, {}, {}))
    return dataclasses.replace(last, committed_at_us=now_us(), rows={}, deletions={})


def commit_command(
    contents: TableContents,
    change: TableChange,
    operation: str,
    done: Sequence[str],
    keys: int | None,
    *,
    properties: Mapping[str, str | None] | None = None,
    numbers: Mapping[str, int] | None = None,
    commit_info: Mapping[str, Any] | None = None,
    meanwhile: str = "while it was rebuilt",
) -> int:
    """Commit a command's change and record its effect; return the table's version.

    `done` is a sentence each. `keys` is the table's number of rows afterwards; None if it is unknown. `meanwhile` is a
    part of the error's text: the period in which no other writer may write.
    """
    target = contents.target
    commit_info = {REPAIR_KEY: {"done": list(done), "keys": keys}, **(commit_info or {})}
    if not change.commit(operation, commit_info, properties=properties, numbers=numbers):
        raise TableError(
            f"another program has written to the table at {target.location} {meanwhile}",
            expected="no other writer of the table",
            hint="stop the queries that write to it, and rerun. Nothing has changed",
        )
    return change.version


def _rows_of(entry: Mapping[str, Any]) -> int | None:
    summary, repair = recorded_under(METADATA_KEY, entry), recorded_under(REPAIR_KEY, entry)
    if summary is not None:
        return summary.get("keys")
    return None if repair is None else repair.get("keys")
