"""What the shards of a union, a merge, an ordered release or a distinct say of each batch: a small file each, below the
query's checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .report_files import Report

__all__ = ["ReorderReport"]


@dataclasses.dataclass(frozen=True)
class ReorderReport(Report):
    """What a shard did, and what it keeps after the batch. Counts are of the whole life of the checkpoint: what came
    was released, is held, or is counted as repeated, superseded or refused.

    Attributes
    ----------
    shard : int
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    now_us : int
        When the last row or punctuation arrived.
    rows, released : int
        That came, and that went on.
    held : int
        Rows that wait for the low-watermark, or for their turn.
    due : int
        Of them, those that the low-watermark has let go: the next batch may release them.
    repeats : int
        Rows that were left out because others like them went on.
    late : int
        Rows below the low-watermark that had been promised on.
    refused : int
        Of them, those that did not go on.
    remembered : int
        Rows that went on and are known by their key and time, until punctuation passes them.
    state_bytes : int
        Size of what was written in this batch.
    bounds : mapping of str to int
        The bound of each feed, in the order of the time column; 2^63 - 1 for one that has ended.
    promised : int or None
        The bound that the shard has promised.
    needs : int or None
        The least low-watermark, in microseconds, that would release a row that is held; None if none is, or the time
        column holds numbers of which nobody said what they mean.
    superseded : int
        Rows that were left out because a newer row of their key had passed on.
    """

    batch_id: int
    now_us: int
    rows: int
    released: int
    held: int
    due: int
    repeats: int
    late: int
    refused: int
    remembered: int
    state_bytes: int
    bounds: Mapping[str, int]
    promised: int | None = None
    needs: int | None = None
    superseded: int = 0
