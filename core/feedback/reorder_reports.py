"""Reports of the shards of a union, a merge, an ordered release or a distinct."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["ReorderReport"]


@dataclasses.dataclass(frozen=True)
class ReorderReport(Report):
    """A shard's work, and its state after the batch. Counts are since the checkpoint began.

    Each row that came is released, held, or counted as a repeat, superseded or refused.
    """

    batch_id: int  # Spark's number of the batch; -1 if unknown
    now_us: int  # the arrival of the last row or punctuation
    rows: int
    released: int
    held: int  # rows that wait for the low-watermark, or for their turn
    due: int  # held rows that the low-watermark has passed: the next batch may release them
    repeats: int  # rows dropped because an equal row was released
    late: int  # rows below the low-watermark emitted before
    refused: int  # late rows that were not released
    remembered: int  # released rows whose key and time are kept until punctuation passes them
    state_bytes: int  # the bytes written in this batch
    bounds: Mapping[str, int]  # by feed, in the order of the time column; 2^63 - 1 for an ended one
    promised: int | None = None  # the shard's own low-watermark
    # the least low-watermark (µs) that would release a row; None without one, or without a unit
    needs: int | None = None
    superseded: int = 0  # rows dropped because a newer row of their key had passed
