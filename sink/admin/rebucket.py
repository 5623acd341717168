"""Another number of buckets for a table that has grown: its rows are written anew, and one commit puts them in the place of those there were.

Readers go on: the rows are the same, and those who follow the table see a commit that changed none. Memory: the rows of the old buckets whose rows may
meet in one new bucket; one old bucket where the new number is a multiple of the old one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.arguments import path_argument, whole_argument
from ...conf.errors import OptionError
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...delta_format.latest_table import BUCKETS_PROPERTY
from ..table.contents import Contents, Unreadable
from ..table.tombstones import APP_ID, TombstoneList
from .layout_change import LayoutChange

if TYPE_CHECKING:
    from ..table.files import StagedFile

__all__ = ["rebucket_table"]


def rebucket_table(path: str, buckets: int, *, storage: Mapping[str, str] | None = None) -> int:
    """Lay a table out in another number of buckets; returns its version afterwards.

    A query that is writing to it fails with its next batch, and goes on when it is restarted; one that was given the option ``buckets`` has to be given the
    new number. A process that dies leaves the table as it was, and files that ``upstream maintain`` removes later.

    Parameters
    ----------
    path, storage
        The table.
    buckets
        How many; 500,000 to 1 million keys in each is a good measure.

    Raises
    ------
    OptionError
        The number is not at least 1, or the table is not divided by a key.
    TableError
        There is no such table, a file cannot be read, the entry cannot be written, or somebody has written to the table meanwhile.
    EnvironmentMissingError
        It lies in an object store, and the package is not installed by which an entry is put there.
    """
    count = whole_argument("buckets", buckets)
    if count is None:
        raise OptionError("no number of buckets is given", expected="at least 1")
    with Contents.opened(path_argument("path", path), storage) as contents:
        return _rebucket(contents, count)


def _rebucket(contents: Contents, buckets: int) -> int:
    layout = contents.layout
    if not layout.key:
        raise OptionError(
            f"the table at {contents.target.location} has no key by which its rows could be divided",
            expected="a table with an update key",
        )
    if buckets == layout.buckets:
        return contents.table.version()
    with LayoutChange(contents) as change:
        rows = change.replace(contents.snapshot.rows, _parts(contents, buckets, change), changed=False)
        buried: list[StagedFile] = []
        for file in _tombstones(contents, buckets, change):
            change.wrote(file.path)
            buried.append(file)
        deletions = TombstoneList().replaced(buried, contents.files)
        change.wrote(*([deletions.place] if deletions.number else []))
        done = f"{layout.buckets} buckets became {buckets}"
        properties = {BUCKETS_PROPERTY: str(buckets)}
        return change.commit("REBUCKET", done, rows, properties, numbers={APP_ID: deletions.number})


def _parts(contents: Contents, buckets: int, change: LayoutChange) -> Iterator[StagedFile]:
    """The rows as files of the new buckets."""
    step = math.gcd(contents.layout.buckets, buckets)
    for first in range(step):
        old = [bucket for bucket in contents.buckets if bucket % step == first]
        rows = [change.read(path) for bucket in old for path in contents.snapshot.of_bucket(bucket).rows]
        for bucket, part in _divided(rows, contents.layout.key, buckets):
            yield contents.files.stage(part, bucket, 0)


def _tombstones(contents: Contents, buckets: int, change: LayoutChange) -> Iterator[StagedFile]:
    """The deletions as files of the new buckets: there are few, and each bucket has one file."""
    try:
        buried = [contents.buried(bucket) for bucket in contents.snapshot.tombstones.paths]
    except Unreadable as error:
        raise change.unreadable(error) from None
    for bucket, part in _divided(buried, contents.layout.key, buckets):
        yield contents.tombstones.stage(part, bucket, 0)


def _divided(tables: Sequence[pa.Table], key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    numbers = pa.array(bucket_of(columns_at(rows, key), buckets))
    for bucket in sorted(numbers.unique().to_pylist()):
        yield bucket, rows.filter(pc.equal(numbers, bucket))
