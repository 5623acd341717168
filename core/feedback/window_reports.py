"""What the shards of a window operator say of each batch: a small file each, below the query's checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["WindowReport"]


@dataclasses.dataclass(frozen=True)
class WindowReport(Report):
    """What a shard did in a batch, and what it keeps afterwards.

    Attributes
    ----------
    shard : int
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    now_us : int
        When the last row or punctuation of the batch arrived.
    bound : int or None
        The low-watermark, in microseconds; None before the first punctuation.
    closed, final : int
        The greatest window-id that is complete, and that can no longer be corrected; -2^63 for none.
    ahead : int
        The greatest window-id that is closed for some key by punctuation of its own; -2^63 for none.
    results, partial, corrected : int
        Results of closed windows, of open ones, and results given again, in this batch.
    late, superseded, outside : int
        Rows of this batch that missed a window that was final, rows of windows that eager emission passes over, and
        rows between two windows.
    tombstones : int
        Tombstones that were left out, in all batches of the checkpoint.
    entries, rows : int
        Partial aggregates and rows that are kept: what the thesis counts memory by (§6.3.2).
    running : int
        Keys whose last window is kept.
    state_bytes : int
        Size of what was written.
    runs_read, runs_written : int
        Pages of entries fetched and written in this batch.
    plan : mapping of str to str
        What the checkpoint is bound to.
    held : int
        Entries and rows that are kept for windows that have not closed.
    held_since_us : int or None
        When the oldest of them arrived, to a batch; None if nothing is held.
    needs : int or None
        The least low-watermark that would close a window with something in it, or let a result go that waits for
        later windows; None if nothing is held.
    aggregates : str or None
        The aggregates in words; None in a report of a release that bound a checkpoint to them.
    state : mapping of str to str or None
        Names and types of the columns that are kept for them.
    bounds : mapping of str to int
        What each feed has promised: those with a bound below `needs` are what is waited for. 2^63-1 for a feed that has
        ended.
    due, waiting : int
        Results of closed windows that the next batch may let go, and all that have not left yet.
    """

    batch_id: int
    now_us: int
    bound: int | None
    closed: int
    final: int
    ahead: int
    results: int
    partial: int
    corrected: int
    late: int
    superseded: int
    outside: int
    entries: int
    rows: int
    running: int
    state_bytes: int
    runs_read: int
    runs_written: int
    plan: Mapping[str, str]
    tombstones: int = 0
    held: int = 0
    held_since_us: int | None = None
    needs: int | None = None
    aggregates: str | None = None
    state: Mapping[str, str] | None = None
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    due: int = 0
    waiting: int = 0
