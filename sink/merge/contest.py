"""How the rows of a batch compare with those that the table holds: the later time stays, and on equal times the later
arrival.
"""

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
    """How a batch's rows compare with those that are held.

    Attributes
    ----------
    rival : int64 array of length new rows
        Position of the held row with the same key; -1 where there is none.
    won : bool array of length new rows
        Which are newer than their rival, or have none.
    tied : bool array of length new rows
        Which have a rival of the same time.
    """

    rival: Int64s
    won: Mask
    tied: Mask

    def stays(self, count: int, won: Mask | None = None) -> Mask:
        """Return which of the `count` held rows have no rival that won (by `won`, or else by this contest)."""
        stays = np.ones(count, dtype=np.bool_)
        stays[self.rival[(self.rival >= 0) & (self.won if won is None else won)]] = False
        return stays


def contest(held: pa.Table, new: pa.Table, layout: Layout) -> Contest:
    """Compare rows that are held with the newest rows of a batch.

    Parameters
    ----------
    held, new
        The key, order and `_upstream_seq` columns of both, each with at most one row for each key.
    """
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
