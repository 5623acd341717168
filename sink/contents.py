"""A table as it lies there, for those who look after it: the layout that it says it has, its files, and what is in each."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ..conf.errors import TableError
from ..conf.locations import absolute_location
from ..frames.data_files import LiveFiles
from ..frames.table_folder import TableFolder
from .files import DataFiles
from .layout import Layout
from .options import STORAGE_PREFIX, SinkTarget, parse_sink_options
from .table import Snapshot, load_table, take_snapshot
from .tombstones import tombstone_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["Contents", "Unreadable"]


@dataclasses.dataclass(frozen=True)
class Unreadable(Exception):  # noqa: N818 it is what was found, not an error of ours
    """A file that cannot be read.

    Attributes
    ----------
    path : str
        Relative to the table.
    gone : bool
        Whether there is none.
    reason : str
    """

    path: str
    gone: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """One version of a table.

    Attributes
    ----------
    target, table, layout, snapshot
        The table.
    files, tombstones : DataFiles
        Read the files of its rows, and of its deletions.
    sizes : mapping of str to int
        What the log says of each data file, in bytes.
    """

    target: SinkTarget
    table: DeltaTable
    layout: Layout
    snapshot: Snapshot
    files: DataFiles
    tombstones: DataFiles
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, path: str, storage: Mapping[str, str]) -> Contents:
        """The table at its latest version.

        Raises
        ------
        TableError
            There is none, it is not one of ours, or its log or its list of deletions cannot be read.
        """
        given = {"path": path, "key": "?"} | {STORAGE_PREFIX + name: value for name, value in storage.items()}
        target = parse_sink_options(given, started=False)
        table = load_table(target)
        if table is None:
            raise TableError(
                f"there is no table at {target.location}",
                expected="a folder or an address that holds one",
                hint="check the path",
            )
        layout = Layout.recorded(table, target.location)
        files = DataFiles(target, layout.file_schema())
        snapshot = take_snapshot(table, files, target)
        live = LiveFiles.of(table)
        sizes = dict(zip(live.paths, live.sizes, strict=True))
        return cls(target, table, layout, snapshot, files, tombstone_files(target, layout, files.schema), sizes)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str, storage: Mapping[str, str] | None) -> Generator[Contents]:
        """:meth:`of`, for as long as it is looked at: errors that leave the block tell no secret of an object store."""
        given = storage or {}
        with TableFolder(absolute_location(path), given).guarded():
            yield cls.of(path, given)

    @property
    def buckets(self) -> list[int]:
        """All there should be, and others that files say they are of."""
        return sorted({*range(self.layout.buckets), *self.snapshot.files})

    def rows(self, path: str) -> pa.Table:
        """The rows of a data file, whole.

        Raises
        ------
        Unreadable
            It is gone, damaged, or not what the log says.
        """
        return self._read(self.files, path, self.files.schema.names)

    def deciding(self, path: str, *, whole: bool = False) -> pa.Table:
        """Of the rows of a data file the columns that decide which is newer; if `whole`, the others are read too, and dropped.

        Raises
        ------
        Unreadable
            It is gone, damaged, or not what the log says.
        """
        return self._read(self.files, path, self.layout.deciding, whole=whole)

    def buried(self, bucket: int) -> pa.Table:
        """The tombstones of a bucket: key, time and `_upstream_seq`.

        Raises
        ------
        Unreadable
            Their file is gone or damaged.
        """
        path = self.snapshot.tombstones.paths.get(bucket)
        if path is None:
            return pa.schema([self.files.schema.field(name) for name in self.layout.deciding]).empty_table()
        return self._read(self.tombstones, path, self.layout.deciding)

    def _read(self, files: DataFiles, path: str, columns: list[str], *, whole: bool = False) -> pa.Table:
        try:
            reader = files.open([path], [self.snapshot.vectors.get(path)])
            try:
                size, counted = self.sizes.get(path), self.snapshot.rows.get(path)
                if counted is not None and reader.rows != counted:
                    raise Unreadable(path, False, f"it has {reader.rows} rows, and the log says {counted}")
                kept = reader.read(columns)
                for name in files.schema.names:
                    if whole and name not in columns:
                        reader.read([name])
            finally:
                reader.close()
            if size is not None and (found := files.size(path)) != size:
                raise Unreadable(path, False, f"it has {found} bytes, and the log says {size}")
        except FileNotFoundError:
            raise Unreadable(path, True, "it is not there") from None
        except (OSError, pa.ArrowException, TableError) as error:
            raise Unreadable(path, False, str(error).partition("\n")[0]) from error
        return kept
