"""Deletions that the table remembers, so that an older row which comes later does not bring the key back.

A tombstone is no row of the Delta table: no reader would leave it out. Tombstones are in Parquet files of their own
below a folder that readers and VACUUM skip, at most one file a bucket. Which files count is in a list, a small file
that never changes; the Delta commit itself records which list counts, as the version of an application's transaction.
So the rows and the tombstones of a batch become visible by one and the same commit. A table without a time column needs
none: what arrives later is newer.
"""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...conf.errors import OptionError, TableError
from ...core.rows.sort_keys import ordered
from ...storage.folder import TableFolder
from .files import DataFiles, StagedFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from ..spec.options import Retention, SinkTarget

__all__ = ["APP_ID", "DELETIONS", "FOLDER", "TombstoneList", "check_retention", "forget_below", "tombstone_files"]

APP_ID = "upstream-tombstones"
"""Names the transaction whose version is the number of the list that counts; 0 while there is none."""

FOLDER = "_upstream_tombstones/"

DELETIONS = "deleted/"
"""Where deletions lie for those who follow the table. No hidden folder: VACUUM is to remove them when they are old."""

_DAY_US = 86_400_000_000
_RETENTION_US = 7 * _DAY_US
_LEAST = int(np.iinfo(np.int64).min)


@dataclasses.dataclass(frozen=True)
class TombstoneList:
    """Which files hold the table's tombstones at one version.

    Attributes
    ----------
    number : int
        Of the list; 0 when there is none.
    paths : mapping of int to str
        The file of each bucket that has any, relative to the table.
    """

    number: int = 0
    paths: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def place(self) -> str:
        """The path of the list, relative to the table."""
        return f"{FOLDER}{self.number}.json"

    @classmethod
    def of(cls, table: DeltaTable, files: DataFiles | TableFolder) -> TombstoneList:
        """Return the list that counts at the version of a loaded table.

        Raises
        ------
        TableError
            It is gone.
        """
        return cls.numbered(table.transaction_version(APP_ID) or 0, files)

    @classmethod
    def numbered(cls, number: int, files: DataFiles | TableFolder) -> TombstoneList:
        """Return the list with a number.

        Raises
        ------
        TableError
            It is gone.
        """
        if number == 0:
            return cls()
        found = cls(number)
        try:
            listed = json.loads(files.read(found.place))
        except FileNotFoundError as error:
            raise TableError(
                f"the list of the table's deletions is gone: {found.place}",
                expected=f"the folder {FOLDER} as this sink keeps it: without it older rows would bring deleted keys "
                "back",
                hint="restart the query if another one has just written to the table; else restore the folder",
            ) from error
        return cls(number, {int(bucket): path for bucket, path in listed.items()})

    def replaced(self, staged: Iterable[StagedFile]) -> TombstoneList:
        """Return a list in which these files replace their buckets' earlier ones; without files, this list.

        A new list has to be written.
        """
        return self._with(dict(self.paths) | {file.bucket: file.path for file in staged if file.bucket is not None})

    def without(self, buckets: Iterable[int]) -> TombstoneList:
        """Return a list in which some buckets have no tombstones any more; this one if they have none.

        A new list has to be written.
        """
        gone = set(buckets)
        return self._with({bucket: path for bucket, path in self.paths.items() if bucket not in gone})

    def _with(self, paths: Mapping[int, str]) -> TombstoneList:
        # By a number of its own, so that two attempts never write one place; a transaction's version has 63 bits.
        return self if paths == self.paths else TombstoneList(uuid.uuid4().int >> 66 | 1, paths)

    def write(self, files: DataFiles, before: TombstoneList, wrote: Callable[[str], object]) -> None:
        """Write the list, unless it is the one before.

        Parameters
        ----------
        files, before
            Of the table, and what counts there until the commit.
        wrote
            Receives the place before there is a file, so that whatever fails from then on can remove it.
        """
        if self.number != before.number:
            wrote(self.place)
            files.write(self.place, json.dumps(self.paths, sort_keys=True).encode())

    def held(self) -> set[str]:
        """Return the paths of the list itself and of the files that it names."""
        return {self.place, *self.paths.values()} if self.number else set()


def tombstone_files(target: SinkTarget, layout: Layout, schema: pa.Schema) -> DataFiles:
    """Return the tombstones' files, which have the key, the order and `_upstream_seq` of the table's `schema`."""
    return DataFiles(target, pa.schema([schema.field(name) for name in layout.deciding]), FOLDER)


def check_retention(retention: Retention | None, layout: Layout) -> None:
    """Refuse an option ``tombstoneRetention`` that does not fit the time column.

    Raises
    ------
    OptionError
        A duration for numbers, a number for times, or no time column at all.
    """
    if retention is None:
        return
    if layout.time is None:
        raise OptionError(
            "tombstoneRetention is given, but no time column that decides",
            expected="a time column: without one nothing has to be remembered of a deletion, or, by a sequence, all of "
            "them do",
            hint="leave tombstoneRetention out, or name the column in the option time",
        )
    kind = layout.arrow_schema().field(layout.time).type
    if _holds_times(kind) != (retention.duration_us is not None):
        wanted = "a duration such as '7 days'" if _holds_times(kind) else "a number in the column's own unit"
        raise OptionError(
            f"tombstoneRetention is {'a number' if _holds_times(kind) else 'a duration'}, and the time column "
            f"{layout.time!r} "
            f"is of type {kind}",
            expected=wanted,
            hint=f"give {wanted}",
        )


def forget_below(low_watermark: Any, retention: Retention | None, kind: pa.DataType) -> int | None:
    """Return the time before which tombstones are forgotten; None forgets nothing.

    It is in the numbers of :func:`~upstream.core.rows.sort_keys.ordered`.

    Parameters
    ----------
    low_watermark
        The low-watermark as commits record it; None if there is none.
    retention
        The option; None is a week for times, and forever for numbers.
    kind
        The time column's type.
    """
    if low_watermark is None:
        return None
    if _holds_times(kind):
        kept_us = _RETENTION_US if retention is None or retention.duration_us is None else retention.duration_us
        edge = int(np.datetime64(str(low_watermark).removesuffix("Z"), "us").astype(np.int64)) - kept_us
        return max(edge // _DAY_US if pa.types.is_date(kind) else edge, _LEAST)
    if retention is None or retention.number is None:
        return None
    if pa.types.is_floating(kind):
        return int(ordered(pa.chunked_array([pa.array([low_watermark - retention.number], pa.float64())]))[0])
    return max(int(low_watermark) - math.ceil(retention.number), _LEAST)


def _holds_times(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)
