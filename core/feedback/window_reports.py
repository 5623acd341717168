"""Reports of the shards of a window operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["WindowReport"]


@dataclasses.dataclass(frozen=True)
class WindowReport(Report):
    """A shard's work in a batch, and its state afterwards."""

    batch_id: int  # Spark's number of the batch; -1 if unknown
    now_us: int  # the arrival of the batch's last row or punctuation
    bound: int | None  # the low-watermark, in microseconds; None before the first punctuation
    closed: int  # the greatest complete window-id; -2^63 for none, as for `final` and `ahead`
    final: int  # the greatest window-id that can no longer be corrected
    ahead: int  # the greatest window-id that per-key punctuation closed for some key
    results: int  # of closed windows, in this batch; `partial`: of open ones; `corrected`: re-emitted
    partial: int
    corrected: int
    late: int  # rows of this batch whose window was final
    superseded: int  # rows of this batch in windows that eager emission skips
    outside: int  # rows of this batch between two windows
    entries: int  # partial aggregates kept; with `rows` the thesis's measure of memory (§6.3.2)
    rows: int
    running: int  # keys whose last window is kept
    state_bytes: int  # the bytes written
    runs_read: int  # pages of entries, in this batch
    runs_written: int
    plan: Mapping[str, str]  # the settings to which the checkpoint is bound
    tombstones: int = 0  # tombstones dropped, in all batches of the checkpoint
    held: int = 0  # entries and rows of windows that have not closed
    held_since_us: int | None = None  # when the oldest of them arrived, to a batch; None if nothing is held
    needs: int | None = None  # the least low-watermark that would release a result; None if nothing is held
    aggregates: str | None = None  # in words; None in reports of a release that bound a checkpoint to them
    state: Mapping[str, str] | None = None  # names and types of the state columns of the aggregates
    # by feed; those below `needs` hold results back; 2^63 - 1 for an ended feed
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    due: int = 0  # results of closed windows that the next batch may release; `waiting`: all unreleased ones
    waiting: int = 0
