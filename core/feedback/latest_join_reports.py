"""What the shards of joins and groups of newest rows report of each batch: a small file each, below the query's
checkpoint.
"""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["LatestJoinReport"]


@dataclasses.dataclass(frozen=True)
class LatestJoinReport(Report):
    """The work of a shard, and what it keeps after the batch. Counts are of the whole life of the checkpoint.

    A shard that only finds the newest rows of one side, ahead of the join, reports them as the left; its counts are of
    one batch. A shard of groups reports its input as the left, and keeps one row for each group.

    Attributes
    ----------
    shard : int
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    now_us : int
        When the last row arrived.
    left_rows, right_rows : int
        Rows that came.
    results : int
        Rows that were given.
    retracted : int
        Of them, tombstones.
    left_kept, right_kept : int
        Rows that are kept: one for each key.
    left_expired, right_expired : int
        Rows that have expired, or had when they came; of the whole life in all shards.
    without_key : int
        Rows with a null in a column of the group.
    late : int
        Rows that came for a window which was final.
    outside : int
        Rows that are in no window.
    state_bytes : int
        Size of what was written in this batch.
    """

    batch_id: int
    now_us: int
    left_rows: int = 0
    right_rows: int = 0
    results: int = 0
    retracted: int = 0
    left_kept: int = 0
    right_kept: int = 0
    left_expired: int = 0
    right_expired: int = 0
    without_key: int = 0
    late: int = 0
    outside: int = 0
    state_bytes: int = 0
