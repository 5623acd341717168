"""Compaction of buckets: small files together, dead rows out, rows sorted by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.clock import now_us
from ...conf.errors import TableError
from ...core.rows.columns import columns_at
from ...delta_format.latest_table import BUCKET
from ..spec.layout import Layout
from ..table.files import DataFiles, StagedFile
from ..table.key_index import KeyIndex
from ..table.log_entry import may_put_entries
from ..table.table import replay_log
from ..table.table_change import TableChange
from .wear import wear_of, worst_buckets

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector
    from ...delta_format.log import LogReplay
    from ..spec.options import SinkTarget

__all__ = ["compact_bucket", "compact_table", "compact_worst"]

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
    for bucket in sorted({int(add["partitionValues"][BUCKET]) for add in log.files.values()}):
        for _ in range(_ATTEMPTS):
            went = compact_bucket(target, table, log, bucket, _LARGE, clock_us() // 1000)
            if went is not None:
                gone += went
                break
            table.update_incremental()
        else:
            raise TableError(
                f"bucket {bucket} of the table at {target.location} cannot be written anew: somebody else has written "
                "to the table each time",
                expected="a table that rests for as long as one bucket takes",
                hint="stop the query that writes to it and say it again; the buckets before this one are done",
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
                # Now its columns are at hand. Who still needs one that goes makes it anew.
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
