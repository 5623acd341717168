"""Reports of the shards of a join."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["JoinReport"]


@dataclasses.dataclass(frozen=True)
class JoinReport(Report):
    """A shard's work, and its state after the batch. Counts are since the checkpoint began."""

    batch_id: int  # Spark's number of the batch; -1 if unknown
    now_us: int  # the arrival of the last row or punctuation
    left_rows: int
    right_rows: int
    results: int
    unmatched: int  # the results without a partner, as in outer joins
    left_late: int  # rows below their own side's low-watermark; they still meet the rows that are kept
    right_late: int
    without_key: int  # rows with a null in a column of `on`: no result has them, not even of an outer join
    left_kept: int
    right_kept: int
    state_bytes: int  # the bytes written in this batch
    bounds: Mapping[str, int]  # by input partition, in the order of the time column; 2^63 - 1 for an ended one
    left_superseded: int = 0  # dropped before their time, since the key's newest pair does not need them
    right_superseded: int = 0
    left_shed: int = 0  # dropped for lack of space, although they might still have met others
    right_shed: int = 0
    left_unsure: int = 0  # came without a partner when one may have been shed: never emitted as unmatched
    right_unsure: int = 0
    promised: int | None = None  # the low-watermark of the results
    needs: int | None = None  # the least low-watermark (µs) that would release something; None if nothing waits
    release: str | None = None  # ``sync`` or ``filter``: how results are put in the order of time; None if they are not
    queued: int = 0  # rows that wait to enter the join
    held: int = 0  # results that wait to leave the join
    late_results: int = 0  # results below the low-watermark released before, which go to the late rows
    rates: list[float] = dataclasses.field(default_factory=list)  # rows a second of the left and the right
    comparisons: int = 0  # new rows times the other side's kept rows, of this batch; `spent_s` for comparing them
    spent_s: float = 0.0
