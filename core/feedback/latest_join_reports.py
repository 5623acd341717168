"""Reports of the shards of joins and groups of newest rows."""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["LatestJoinReport"]


@dataclasses.dataclass(frozen=True)
class LatestJoinReport(Report):
    """A shard's work, and its state after the batch. Counts are since the checkpoint began.

    A shard that only finds one side's newest rows, before the join, reports them as the left, for one batch alone.
    A shard of groups reports its input as the left, and keeps one row for each group.
    """

    batch_id: int  # Spark's number of the batch; -1 if unknown
    now_us: int  # the arrival of the last row
    left_rows: int = 0
    right_rows: int = 0
    results: int = 0
    retracted: int = 0  # the results that are tombstones
    left_kept: int = 0  # one row for each key
    right_kept: int = 0
    left_expired: int = 0  # includes rows that had expired when they came
    right_expired: int = 0
    without_key: int = 0  # rows with a null in a column of the group
    late: int = 0  # rows of windows that were final
    outside: int = 0  # rows that are in no window
    state_bytes: int = 0  # the bytes written in this batch
