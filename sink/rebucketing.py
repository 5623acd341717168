"""Another number of buckets for a table that has grown: its rows are written anew, and one commit puts them in the place of those there were.

Readers go on: the rows are the same, and those who follow the table see a commit that changed none. Memory: the rows of the old buckets whose rows may
meet in one new bucket; one old bucket where the new number is a multiple of the old one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.clock import now_us
from ..conf.errors import OptionError, TableError
from ..conf.locations import absolute_location
from ..frames.buckets import bucket_of
from ..frames.columns import columns_at
from ..frames.latest_table import BUCKETS_PROPERTY
from ..frames.table_folder import TableFolder
from .contents import Contents, Unreadable
from .log_entry import add_action, check_features, put_entry, removed_action
from .repairs import REPAIR_KEY
from .table import remove_unnamed, replay_log
from .tombstones import APP_ID, TombstoneList

if TYPE_CHECKING:
    from .files import StagedFile

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
    if buckets < 1:
        raise OptionError(f"{buckets} buckets", expected="at least 1")
    with TableFolder(absolute_location(path), storage or {}).guarded():
        return _rebucket(Contents.of(path, storage or {}), buckets)


def _rebucket(contents: Contents, buckets: int) -> int:
    layout, location = contents.layout, contents.target.location
    if not layout.key:
        raise OptionError(
            f"the table at {location} has no key by which its rows could be divided",
            expected="a table with an update key",
        )
    if buckets == layout.buckets:
        return contents.table.version()
    log = replay_log(contents.target, contents.table)
    check_features(log, location)
    made: list[StagedFile] = []
    listed: list[str] = []
    committed = False
    try:
        made.extend(_parts(contents, buckets))  # one after the other: after an error it has those that were written
        rows = len(made)
        made.extend(_tombstones(contents, buckets))
        deletions = TombstoneList().replaced(made[rows:], contents.files)
        listed += [deletions.place] if deletions.number else []
        at_ms = now_us() // 1000
        count = sum(file.rows for file in made[:rows])
        configuration = {**log.metadata["configuration"], BUCKETS_PROPERTY: str(buckets)}
        actions: list[dict[str, Any]] = [{"metaData": {**log.metadata, "configuration": configuration}}]
        actions += [_unchanged(removed_action(each, at_ms)) for each in log.files.values()]
        actions += [_unchanged(add_action(file, at_ms)) for file in made[:rows]]
        actions += [{"txn": {"appId": APP_ID, "version": deletions.number}}]
        done = f"{layout.buckets} buckets became {buckets}"
        info = {
            "operation": "REBUCKET",
            "engineInfo": "pyspark-upstream",
            "readVersion": contents.table.version(),
            REPAIR_KEY: {"done": [done], "keys": count},
        }
        version = contents.table.version() + 1
        committed = put_entry(contents.target.folder, version, info, actions)
    finally:
        if not committed:
            remove_unnamed(contents.target, contents.files, [*(file.path for file in made), *listed])
    if not committed:
        raise TableError(
            f"somebody else has written to the table at {location} while it was laid out anew",
            expected="nobody else writing to the table",
            hint="stop the query that writes to it for so long; the table is as it was",
        )
    return version


def _parts(contents: Contents, buckets: int) -> Iterator[StagedFile]:
    """The rows as files of the new buckets."""
    step = math.gcd(contents.layout.buckets, buckets)
    for first in range(step):
        old = [bucket for bucket in contents.buckets if bucket % step == first]
        rows = [_read(contents, path) for bucket in old for path in contents.snapshot.of_bucket(bucket).rows]
        for bucket, part in _divided(rows, contents.layout.key, buckets):
            yield contents.files.stage(part, bucket, 0)


def _tombstones(contents: Contents, buckets: int) -> Iterator[StagedFile]:
    """The deletions as files of the new buckets: there are few, and each bucket has one file."""
    try:
        buried = [contents.buried(bucket) for bucket in contents.snapshot.tombstones.paths]
    except Unreadable as error:
        raise _unreadable(contents, error) from None
    for bucket, part in _divided(buried, contents.layout.key, buckets):
        yield contents.tombstones.stage(part, bucket, 0)


def _divided(tables: Sequence[pa.Table], key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    numbers = pa.array(bucket_of(columns_at(rows, key), buckets))
    for bucket in sorted(numbers.unique().to_pylist()):
        yield bucket, rows.filter(pc.equal(numbers, bucket))


def _read(contents: Contents, path: str) -> pa.Table:
    try:
        return contents.rows(path)
    except Unreadable as error:
        raise _unreadable(contents, error) from None


def _unreadable(contents: Contents, error: Unreadable) -> TableError:
    return TableError(
        f"the file {error.path} of the table at {contents.target.location} cannot be read: {error.reason}",
        expected="a table that `upstream check` finds right",
        hint=f"run `upstream repair {contents.target.location}` first",
    )


def _unchanged(action: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The action of maintenance: files change, rows do not."""
    return {name: {**about, "dataChange": False} for name, about in action.items()}
