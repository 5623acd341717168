"""The faults of one bucket of a stored table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...core.rows.newest import key_codes
from ...delta_format.latest_table import SEQ
from ..merge.contest import contest
from ..merge.pending import Mask
from ..spec.layout import Layout
from ..table.contents import Contents, Unreadable

__all__ = ["BucketState", "look_at", "newer"]


@dataclasses.dataclass(frozen=True)
class BucketState:
    """A bucket's rows and faults."""

    bucket: int
    rows: int = 0  # in the readable files
    unreadable: tuple[Unreadable, ...] = ()
    lost: int | None = 0  # rows of the unreadable files by the log; None if it has no row counts
    duplicates: int = 0  # rows beyond the number that the table keeps of each key
    # the number of rows that belong to each other bucket
    misplaced: Mapping[int, int] = dataclasses.field(default_factory=dict)
    overruled: int = 0  # rows that are older than a deletion of their key
    tombstones: int = 0
    unburied: Unreadable | None = None  # the tombstone file, if it cannot be read

    @property
    def is_right(self) -> bool:
        """Return True if its data files and rows have no fault; unreadable tombstones do not count."""
        return not (self.unreadable or self.duplicates or self.misplaced or self.overruled)


def look_at(contents: Contents, bucket: int) -> tuple[BucketState, pa.Table, pa.Table]:
    """Read a bucket; return its state, its readable rows and its tombstones, each with the deciding columns alone."""
    parts: list[pa.Table] = []
    unreadable: list[Unreadable] = []
    paths = contents.snapshot.of_bucket(bucket).rows
    for path in paths:
        try:
            parts.append(contents.deciding(path))
        except Unreadable as found:
            unreadable.append(found)
    empty = contents.files.schema.empty_table().select(contents.layout.deciding)
    rows = pa.concat_tables(parts) if parts else empty
    unburied: Unreadable | None = None
    try:
        buried = contents.buried(bucket)
    except Unreadable as found:
        buried, unburied = empty, found
    state = BucketState(
        bucket,
        rows.num_rows,
        tuple(unreadable),
        contents.snapshot.count(found.path for found in unreadable),
        _duplicates(rows, contents.layout),
        _misplaced(rows, bucket, contents.layout),
        int((~newer(buried, rows, contents.layout, or_equal=True)).sum()),
        buried.num_rows,
        unburied,
    )
    return state, rows, buried


def newer(held: pa.Table, rows: pa.Table, layout: Layout, *, or_equal: bool = False) -> Mask:
    """Return which rows are newer by their time than the row held of their key; rows of keys without one are newer.

    At most one row is held of each key. `or_equal` counts equal times as newer, whichever row arrived first.
    """
    if not layout.order:
        # Nothing says which is newer: what is held answers for the key.
        return contest(held, rows, layout).rival < 0 if not or_equal else np.ones(rows.num_rows, dtype=np.bool_)
    before, after = (0, 0) if or_equal else (1, 0)
    return contest(_with_seq(held, before), _with_seq(rows, after), layout).won


def _with_seq(rows: pa.Table, seq: int) -> pa.Table:
    place = rows.schema.get_field_index(SEQ)
    return rows.set_column(place, SEQ, pa.array(np.full(rows.num_rows, seq), pa.int64()))


def _duplicates(rows: pa.Table, layout: Layout) -> int:
    if rows.num_rows == 0 or layout.keep.count is None:
        return 0
    codes, size = key_codes(columns_at(rows, layout.key))
    return int(np.maximum(np.bincount(codes, minlength=size) - layout.keep.count, 0).sum())


def _misplaced(rows: pa.Table, bucket: int, layout: Layout) -> dict[int, int]:
    if rows.num_rows == 0 or not layout.key:
        return {}
    belongs, counts = np.unique(bucket_of(columns_at(rows, layout.key), layout.buckets), return_counts=True)
    return {int(other): int(count) for other, count in zip(belongs, counts, strict=True) if other != bucket}
