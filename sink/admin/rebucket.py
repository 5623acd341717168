"""A change of a table's number of buckets: one commit replaces all files."""

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
from ..table.contents import Contents
from ..table.table_change import TableChange
from ..table.tombstones import APP_ID, TombstoneList
from .repairs import commit_command

if TYPE_CHECKING:
    from ..table.files import StagedFile

__all__ = ["rebucket_table"]


def rebucket_table(path: str, buckets: int, *, storage: Mapping[str, str] | None = None) -> int:
    """Rewrite a table in another number of buckets; see :meth:`~upstream.LatestTable.rebucket`.

    Followers see a commit that changes no row. Memory: the old buckets whose rows may meet in one new bucket. That is
    one old bucket if the new number is a multiple of the old.
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
    with TableChange(contents.target, contents.table, contents.files, changed=False) as change, contents.needed():
        rows = change.replace(contents.snapshot.rows, _parts(contents, buckets))
        buried: list[StagedFile] = []
        for file in _tombstones(contents, buckets):
            change.wrote(file.path)
            buried.append(file)
        none = TombstoneList()
        deletions = none.replaced(buried)
        deletions.write(contents.files, none, change.wrote)
        done, properties = [f"{layout.buckets} buckets became {buckets}"], {BUCKETS_PROPERTY: str(buckets)}
        numbers = {APP_ID: deletions.number}
        return commit_command(contents, change, "REBUCKET", done, rows, properties=properties, numbers=numbers)


def _parts(contents: Contents, buckets: int) -> Iterator[StagedFile]:
    step = math.gcd(contents.layout.buckets, buckets)
    for first in range(step):
        old = [bucket for bucket in contents.buckets if bucket % step == first]
        rows = [contents.rows(path) for bucket in old for path in contents.snapshot.of_bucket(bucket).rows]
        for bucket, part in _divided(rows, contents.layout.key, buckets):
            yield contents.files.stage(part, bucket, 0)


def _tombstones(contents: Contents, buckets: int) -> Iterator[StagedFile]:
    """Yield the deletions as files of the new buckets, one file for each bucket that has any."""
    buried = [contents.buried(bucket) for bucket in contents.snapshot.tombstones.paths]
    for bucket, part in _divided(buried, contents.layout.key, buckets):
        yield contents.tombstones.stage(part, bucket, 0)


def _divided(tables: Sequence[pa.Table], key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    numbers = pa.array(bucket_of(columns_at(rows, key), buckets))
    for bucket in sorted(numbers.unique().to_pylist()):
        yield bucket, rows.filter(pc.equal(numbers, bucket))
