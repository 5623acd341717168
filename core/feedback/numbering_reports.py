"""Reports of the step that numbers a stream's rows."""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["NumberingReport"]


@dataclasses.dataclass(frozen=True)
class NumberingReport(Report):
    """The row numbers given so far. The step has one task, so the shard is always 0."""

    batch_id: int  # Spark's number of the batch; -1 if unknown
    now_us: int  # the arrival of the last row
    rows: int  # rows numbered in this batch
    counted: int  # rows numbered in all batches
