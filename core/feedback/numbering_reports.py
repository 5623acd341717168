"""What the step that numbers a stream's rows reports of each batch: a small file below the query's checkpoint."""

from __future__ import annotations

import dataclasses

from .report_files import Report

__all__ = ["NumberingReport"]


@dataclasses.dataclass(frozen=True)
class NumberingReport(Report):
    """How far rows are numbered.

    Attributes
    ----------
    shard : int
        0: there is one.
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    now_us : int
        When the last row arrived.
    rows : int
        Rows of this batch that got a number.
    counted : int
        Rows of all batches that have one.
    """

    batch_id: int
    now_us: int
    rows: int
    counted: int
