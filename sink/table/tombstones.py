"""Deletions that the table remembers, so that an older row which comes later does not bring its key back."""

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
    """The list of files with the table's tombstones at one version.

    Tombstones are not rows of the Delta table: every reader would show them. They are in Parquet files below a
    folder that readers and VACUUM skip, at most one a bucket. The list is a small file that never changes. The
    Delta commit records its number as a transaction's version, so rows and tombstones become visible by one
    commit. Without a time column or a sequence there are none: the later arrival is newer.
    """

    number: int = 0  # 0 if there is no list
    paths: Mapping[int, str] = dataclasses.field(default_factory=dict)  # by bucket, relative to the table

    @property
    def place(self) -> str:
        return f"{FOLDER}{self.number}.json"

    @classmethod
    def of(cls, table: DeltaTable, files: DataFiles | TableFolder) -> TombstoneList:
        return cls.numbered(table.transaction_version(APP_ID) or 0, files)

    @classmethod
    def numbered(cls, number: int, files: DataFiles | TableFolder) -> TombstoneList:
        """Return the list with a number; raise a TableError if it is gone."""
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
        """Return a new list, to be written, with these files for their buckets; this one without files."""
        return self._with(dict(self.paths) | {file.bucket: file.path for file in staged if file.bucket is not None})

    def without(self, buckets: Iterable[int]) -> TombstoneList:
        """Return a new list, to be written, without some buckets; this one if they have no tombstones."""
        gone = set(buckets)
        return self._with({bucket: path for bucket, path in self.paths.items() if bucket not in gone})

    def _with(self, paths: Mapping[int, str]) -> TombstoneList:
        # By a number of its own, so that two attempts never write one place; a transaction's version has 63 bits.
        return self if paths == self.paths else TombstoneList(uuid.uuid4().int >> 66 | 1, paths)

    def write(self, files: DataFiles, before: TombstoneList, wrote: Callable[[str], object]) -> None:
        """Write the list, unless it is the one `before`; `wrote` receives its path first, for a later removal."""
        if self.number != before.number:
            wrote(self.place)
            files.write(self.place, json.dumps(self.paths, sort_keys=True).encode())

    def held(self) -> set[str]:
        """Return the paths of the list and of the files that it names."""
        return {self.place, *self.paths.values()} if self.number else set()


def tombstone_files(target: SinkTarget, layout: Layout, schema: pa.Schema) -> DataFiles:
    """Return the tombstones' files, which have the deciding columns of the table's `schema`."""
    return DataFiles(target, pa.schema([schema.field(name) for name in layout.deciding]), FOLDER)


def check_retention(retention: Retention | None, layout: Layout) -> None:
    """Refuse a ``tombstoneRetention`` that does not fit the time column: a duration is for times alone."""
    if retention is None:
        return
    if layout.time is None:
        raise OptionError(
            "tombstoneRetention without a time column that orders the rows",
            expected="eventTime without sequenceBy: a table ordered by arrival keeps no tombstones, one by a sequence "
            "all of them",
            hint="remove tombstoneRetention, or name the column in the option eventTime",
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
    """Return the time, as a sort key, before which tombstones are forgotten; None forgets none.

    `low_watermark` is as commits record it. Without the option, the retention is a week for times, and
    unlimited for numbers.
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
