"""Compaction of buckets: small files together, dead rows out, rows sorted by key."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import TableError
from ...conf.progress import tracked
from ...conf.units import now_us
from ...core.rows.columns import columns_at
from ...delta_format.latest_table import BUCKET
from ..spec.layout import Layout
from ..table.files import DataFiles, StagedFile
from ..table.key_index import KeyIndex
from ..table.log_entry import may_put_entries
from ..table.table import TableChange, replay_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector
    from ...delta_format.log import LogReplay
    from ..spec.options import SinkTarget


SHARE = 10
"""Of so many live rows at most one is dead."""
FILE = 4096
"""A file beyond a bucket's first two counts as so many dead rows. The second is that of the fresh rows: the next batch
would make it again.
"""
WORTH = 10_000
"""A bucket with fewer rows is read in no time, whatever it is like."""


class BucketStats(NamedTuple):
    """A bucket's row and file counts, which decide the cost of reading it."""

    live: int
    dead: int  # rows that are marked as dead
    files: int

    @property
    def burden(self) -> int:
        """Return the cost of reading beyond the live rows, in rows."""
        return self.dead + FILE * max(self.files - 2, 0)


def worst_buckets(worn: Mapping[int, BucketStats]) -> list[int]:
    """Return the buckets to rewrite, the worst first, and as few as suffice.

    Each is at least as bad as the whole table, so the writes follow the wear. In the long run, they are at most
    :data:`SHARE` rows for each dead one, and about half as many if all buckets wear alike.
    """
    counted = {bucket: wear for bucket, wear in worn.items() if wear.live + wear.dead >= WORTH}
    burden = sum(wear.burden for wear in counted.values())
    most = sum(wear.live for wear in counted.values()) // SHARE
    chosen: list[int] = []
    for bucket in sorted(counted, key=lambda each: (-counted[each].burden / max(counted[each].live, 1), each)):
        if burden <= most:
            break
        chosen.append(bucket)
        burden -= counted[bucket].burden
    return chosen


def wear_of(log: LogReplay) -> dict[int, BucketStats]:
    """Return the wear of each bucket by the table's log; files without a row count there count as empty."""
    vectors = log.vectors()
    worn: dict[int, BucketStats] = {}
    for path, add in log.files.items():
        bucket = int(add["partitionValues"][BUCKET])
        dead = vectors[path].cardinality if path in vectors else 0
        before = worn.get(bucket, BucketStats(0, 0, 0))
        live = max(_rows(add.get("stats") or "{}") - dead, 0)
        worn[bucket] = BucketStats(before.live + live, before.dead + dead, before.files + 1)
    return worn


# The statistics of a file stay as they are from the first row on that is marked.
@functools.lru_cache(maxsize=4096)
def _rows(stats: str) -> int:
    try:
        return int(json.loads(stats).get("numRecords") or 0)
    except ValueError:
        return 0


# What is written by hand: a file of so much is read as fast as one by itself.
_LARGE = 128 << 20
# After a commit, in the process that commits.
_IN_PASSING = 64 << 20
_ATTEMPTS = 5


def compact_table(target: SinkTarget, table: DeltaTable, clock_us: Callable[[], int] = now_us) -> int:
    """Rewrite each bucket with files to merge or dead rows by its own commit; return the number of files replaced.

    A query that writes meanwhile continues with the new files; readers and followers do not notice. Finished
    buckets stay rewritten if a later one fails, because another writer interferes with each attempt.
    """
    gone, log = 0, replay_log(target, table)
    for bucket in tracked(sorted({int(add["partitionValues"][BUCKET]) for add in log.files.values()}), "buckets"):
        for _ in range(_ATTEMPTS):
            went = compact_bucket(target, table, log, bucket, _LARGE, clock_us() // 1000)
            if went is not None:
                gone += went
                break
            table.update_incremental()
        else:
            raise TableError(
                f"bucket {bucket} of the table at {target.location} cannot be rewritten: another program has written "
                "to the table each time",
                expected="no other writer while one bucket is rewritten",
                hint="stop the query that writes to it, and rerun; the buckets before this one are done",
            )
    return gone


def compact_worst(
    target: SinkTarget, table: DeltaTable, late: Callable[[], bool], clock_us: Callable[[], int] = now_us
) -> int:
    """Rewrite the worst buckets of a table with deletion vectors; return the number of files replaced.

    Each has its own commit, and the work ends before the next one once `late` returns True. If another writer
    commits at the same moment, the rest waits for the next maintenance.
    """
    if "deletionVectors" not in (table.protocol().writer_features or ()) or not may_put_entries(target, table):
        return 0
    table.update_incremental()
    gone, log = 0, replay_log(target, table)
    for bucket in worst_buckets(wear_of(log)):
        went = None if late() else compact_bucket(target, table, log, bucket, _IN_PASSING, clock_us() // 1000)
        if went is None:
            break
        gone += went
    return gone


def compact_bucket(
    target: SinkTarget, table: DeltaTable, log: LogReplay, bucket: int, small: int, written_ms: int
) -> int | None:
    """Merge a bucket's small files and drop its dead rows; return the number of files replaced.

    It is None if another writer has committed meanwhile; then nothing changed. Files of fewer than `small`
    bytes are small, and at most that many bytes become one file. Memory: twice the rows of one new file.
    """
    log.follow(table.version())
    layout = Layout.recorded(table, target.location)
    files = DataFiles(target, layout.file_schema())
    change = TableChange(target, table, files, changed=False, log=log, at_ms=written_ms)
    index = KeyIndex(target.location, layout.key, target.options.index_location, target.options.index_limit)
    vectors = log.vectors()
    held = {path: add["size"] for path, add in log.files.items() if add["partitionValues"][BUCKET] == str(bucket)}
    groups = _groups(held, vectors, small)
    if not groups:
        return 0
    with change:
        for paths in groups:
            rows = files.read_rows(paths, [vectors.get(path) for path in paths])
            made: StagedFile | None = None
            if rows.num_rows:
                rows = _by_key(rows, layout.key)
                made = files.stage(rows, bucket, 0, to_last=True)
                change.wrote(made.path)
                # Now its columns are at hand. Who still needs one that goes makes it again.
                index.replace(paths, made.path, rows.select(layout.deciding))
            change.replace(paths, [made])
        if not change.commit("OPTIMIZE"):
            return None
    table.update_incremental()
    return sum(map(len, groups))


def _groups(sizes: Mapping[str, int], vectors: Mapping[str, DeletionVector], small: int) -> list[list[str]]:
    """Return the groups of files that become one: small ones, together up to `small` bytes, or one with dead rows."""
    groups: list[list[str]] = [[]]
    room = small
    for path in sorted(path for path, size in sizes.items() if size < small):
        if sizes[path] > room:
            groups.append([])
            room = small
        groups[-1].append(path)
        room -= sizes[path]
    groups += [[path] for path, size in sorted(sizes.items()) if size >= small]
    return [group for group in groups if len(group) > 1 or any(path in vectors for path in group)]


def _by_key(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort the rows by their key, if it has an order, so that a row group's bounds narrow down its keys."""
    if not key:
        return rows
    columns = columns_at(rows, key)
    try:
        if len(columns) == 1 and pa.types.is_signed_integer(columns[0].type):
            order = pa.array(np.argsort(columns[0].to_numpy(), kind="stable"))  # files that are sorted already are runs
        else:
            names = [str(at) for at in range(len(columns))]
            order = pc.sort_indices(pa.table(columns, names=names), sort_keys=[(name, "ascending") for name in names])
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return rows
    return rows.combine_chunks().take(order)
