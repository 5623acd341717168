"""Reports of the shards of a stage of hosted queries."""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["StageReport"]


@dataclasses.dataclass(frozen=True)
class StageReport(Report):
    """The rows that a shard holds after a batch."""

    # the least low-watermark (µs) that would change a result or admit a row; None if nothing is held
    needs: int | None = None
    held_since_us: int | None = None  # arrival of the newest row of the batch in which holding began
    behind: bool = False  # a query lags behind the low-watermark: the next batch continues even without rows
