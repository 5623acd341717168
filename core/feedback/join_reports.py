"""What the shards of a join report of each batch: a small file each, below the query's checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["JoinReport"]


@dataclasses.dataclass(frozen=True)
class JoinReport(Report):
    """The work of a shard, and what it keeps after the batch. Counts are of the whole life of the checkpoint.

    Attributes
    ----------
    shard : int
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    now_us : int
        When the last row or punctuation arrived.
    left_rows, right_rows : int
        Rows that came.
    results : int
        Rows that were given.
    unmatched : int
        Of them, those without a partner.
    left_late, right_late : int
        Rows below the low-watermark of their own side. They meet the rows that are still kept.
    without_key : int
        Rows with a null in a column of `on`. They meet nothing and are not in the results of outer joins.
    left_kept, right_kept : int
        Rows that are kept.
    left_superseded, right_superseded : int
        Rows that were dropped earlier than their time, since the newest pair of a key no longer needs them.
    left_shed, right_shed : int
        Rows that were dropped for want of space, although they might have met others.
    left_unsure, right_unsure : int
        Rows that came when a partner may have been shed, and had none then. They are not given as rows without one.
    state_bytes : int
        Size of what was written in this batch.
    bounds : mapping of str to int
        The bound of each input partition, in the order of the time column; 2^63 - 1 for one that has ended.
    promised : int or None
        The bound of the results' times.
    needs : int or None
        The least low-watermark, in microseconds, that would release a row without a partner, or something that waits
        for the order of time; None if nothing waits, or the unit of the times is not known.
    release : str or None
        How results come into the order of time: ``sync`` or ``filter``; None if they leave as they are found.
    queued, held : int
        Rows that wait to enter the join, and results that wait to leave it.
    late_results : int
        Results below what had been released, which were set aside.
    rates : list of float
        Rows a second of the left and the right.
    comparisons : int
    spent_s : float
        New rows times kept ones of the other side, of this batch, and the seconds that went into comparing them.
    """

    batch_id: int
    now_us: int
    left_rows: int
    right_rows: int
    results: int
    unmatched: int
    left_late: int
    right_late: int
    without_key: int
    left_kept: int
    right_kept: int
    state_bytes: int
    bounds: Mapping[str, int]
    left_superseded: int = 0
    right_superseded: int = 0
    left_shed: int = 0
    right_shed: int = 0
    left_unsure: int = 0
    right_unsure: int = 0
    promised: int | None = None
    needs: int | None = None
    release: str | None = None
    queued: int = 0
    held: int = 0
    late_results: int = 0
    rates: list[float] = dataclasses.field(default_factory=list)
    comparisons: int = 0
    spent_s: float = 0.0
