"""The comparison of a batch's rows with held rows: the later time wins; on equal times, the later arrival."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import places_of_both
from ..spec.layout import Layout
from .pending import NO_SEQ, Int64s, Mask, seq_of

__all__ = ["Contest", "contest"]


@dataclasses.dataclass(frozen=True)
class Contest:
    """The comparison of a batch's new rows with held rows; each array is as long as the new rows."""

    rival: Int64s  # position of the held row with the same key; -1 if there is none
    won: Mask  # new rows that are newer than their rival, or have none
    tied: Mask  # new rows with a rival of the same time

    def stays(self, count: int, won: Mask | None = None) -> Mask:
        """Return which of the `count` held rows have no rival that won (by `won`, or else by this contest)."""
        stays = np.ones(count, dtype=np.bool_)
        stays[self.rival[(self.rival >= 0) & (self.won if won is None else won)]] = False
        return stays


def contest(held: pa.Table, new: pa.Table, layout: Layout) -> Contest:
    """Compare held rows with new ones; each side has at most one row for each key."""
    count = held.num_rows
    won, tied = np.ones(new.num_rows, dtype=np.bool_), np.zeros(new.num_rows, dtype=np.bool_)
    if count == 0:
        return Contest(np.full(new.num_rows, -1, dtype=np.int64), won, tied)
    pairs = zip(columns_at(held, layout.key), columns_at(new, layout.key), strict=True)
    codes, size = key_codes([pa.chunked_array([*one.chunks, *other.chunks], one.type) for one, other in pairs])
    position = np.full(size, -1, dtype=np.int64)
    position[codes[:count]] = np.arange(count)
    rival = position[codes[count:]]
    met = np.flatnonzero(rival >= 0)
    if layout.order and len(met):
        columns = columns_at(held, layout.order), columns_at(new, layout.order)
        old_time, new_time = places_of_both(columns[0], rival[met], columns[1], met)
        old_seq, new_seq = seq_of(held)[rival[met]], seq_of(new)[met]
        # A batch without the system column does not know the order of arrival: it came after what is held.
        tied[met] = new_time == old_time
        won[met] = (new_time > old_time) | (tied[met] & ((new_seq == NO_SEQ) | (new_seq >= old_seq)))
    return Contest(rival, won, tied)
