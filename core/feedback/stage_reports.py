"""What the shards of a stage of hosted queries report: a small file each, below the query's checkpoint."""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["StageReport"]


@dataclasses.dataclass(frozen=True)
class StageReport(Report):
    """What a shard holds after a batch.

    Attributes
    ----------
    shard : int
    needs : int or None
        The least low-watermark, in microseconds, that would change a result or let a row take part in one; None if
        nothing is held.
    held_since_us : int or None
        The arrival of the newest row in the batch since which something has been held; None if nothing is held.
    behind : bool
        Whether a query has not come as far as the low-watermark: the next batch goes on, with or without rows.
    """

    needs: int | None = None
    held_since_us: int | None = None
    behind: bool = False
