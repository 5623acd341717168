"""The newest rows of each key in a batch, by (time, arrival), or by arrival alone without a time column."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import NewestPerKey, differing, key_codes, ties_within
from ...core.rows.sort_keys import places, places_of_both
from ...delta_format.latest_table import SEQ
from ..spec.history import newest_of_each
from ..spec.layout import Layout
from .batch_rows import NO_SEQ, BatchRows, seq_of


@dataclasses.dataclass(frozen=True)
class MergeContest:
    """The comparison of a batch's new rows with held rows; each array is as long as the new rows."""

    rival: Int64s  # position of the held row with the same key; -1 if there is none
    won: Mask  # new rows that are newer than their rival, or have none
    tied: Mask  # new rows with a rival of the same time

    def stays(self, count: int, won: Mask | None = None) -> Mask:
        """Return which of the `count` held rows have no rival that won (by `won`, or else by this contest)."""
        stays = np.ones(count, dtype=np.bool_)
        stays[self.rival[(self.rival >= 0) & (self.won if won is None else won)]] = False
        return stays


def contest(held: pa.Table, new: pa.Table, layout: Layout) -> MergeContest:
    """Compare held rows with new ones; each side has at most one row for each key."""
    count = held.num_rows
    won, tied = np.ones(new.num_rows, dtype=np.bool_), np.zeros(new.num_rows, dtype=np.bool_)
    if count == 0:
        return MergeContest(np.full(new.num_rows, -1, dtype=np.int64), won, tied)
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
    return MergeContest(rival, won, tied)


def lost_pairs(one: BatchRows, at: Int64s, two: BatchRows, other: Int64s, layout: Layout) -> Mask:
    """Return which pairs of rows or deletions of one key and one time conflict.

    Equal rows do not: at-least-once feeds repeat rows. A row and a deletion conflict; two deletions do not.
    Rows older than the newest of their key are never compared: no reader would have seen their outcome.
    """
    if len(at) == 0:
        return np.zeros(0, dtype=np.bool_)
    gone, gone_too = _deleted(one)[at], _deleted(two)[other]
    fixed = {*layout.key, *layout.order, SEQ}
    payload = [name for name in one.rows.schema.names if name not in fixed]
    conflicts = gone != gone_too
    both = np.flatnonzero(~gone & ~gone_too)  # a deletion says nothing but that the key is gone
    conflicts[both] = differing(one.rows, at[both], two.rows, other[both], payload)
    return conflicts


def lost_within(rows: BatchRows, pairs: Int64s, layout: Layout) -> BatchRows | None:
    """Return the rows that lost to another row of the batch in a conflict; None if there are none.

    `pairs` has the positions of the row that stays, and of one of its key and time that leaves.
    """
    lost = pairs[lost_pairs(rows, pairs[:, 0], rows, pairs[:, 1], layout), 1]
    return rows.take(lost) if len(lost) else None


def lost_against(new: BatchRows, contest: MergeContest, held: BatchRows, layout: Layout) -> list[BatchRows]:
    """Return the rows that lost in a conflict between the batch and held rows, of either side.

    `contest` compares `new` with the held rows. `held` has the rivals of the tied rows, in their order.
    """
    met = np.flatnonzero(contest.tied)
    found = np.flatnonzero(lost_pairs(new, met, held, np.arange(len(met)), layout))
    wins = contest.won[met[found]]
    sides = [held.take(found[wins]), new.take(met[found[~wins]])]
    return [side for side in sides if side.rows.num_rows]


def _deleted(rows: BatchRows) -> Mask:
    return np.zeros(rows.rows.num_rows, dtype=np.bool_) if rows.deleted is None else rows.deleted


def unheard(rows: BatchRows) -> None:
    """Drop rows that lost in a conflict."""
    del rows


class _ArrivalOrder(NamedTuple):
    """Keys and times in the order of arrival."""

    codes: Int64s
    size: int
    time: Int64s | None
    order: Int64s | None  # the rows' positions; None if they are in that order


def newest_rows(pending: BatchRows, layout: Layout, lost: Callable[[BatchRows], None] = unheard) -> BatchRows:
    """Return the newest row of each key, which represents the key's other rows, or the rows that the table keeps.

    `lost` receives the rows that lost in a conflict.
    """
    if pending.rows.num_rows == 0 or layout.history.count is None:
        return pending
    arrived = _arrived(pending, layout)
    if arrived.time is not None and layout.history.count > 1:
        return _newest_of_each(pending, arrived, layout, lost)
    codes, size, time, order = arrived
    first, covered = pending.first_arrival_us, pending.covered
    if order is not None:
        covered = covered[order]
        first = None if first is None else first[order]
    best = NewestPerKey(codes, size, time, 0 if first is None else first, covered)
    if time is not None and len(best.rows) < len(codes):
        _tell(pending, ties_within(codes, size, time, best.rows), arrived, layout, lost)
    rows, first_arrival, covered = best.rows, best.first_arrival_us, best.covered
    if order is not None:
        rows = order[rows]
        place = np.argsort(rows)
        rows, first_arrival, covered = rows[place], first_arrival[place], covered[place]
    if len(rows) == pending.rows.num_rows:
        kept = pending
    else:
        chosen = np.zeros(pending.rows.num_rows, dtype=np.bool_)
        chosen[rows] = True
        kept = pending.chosen(chosen)
    return dataclasses.replace(kept, first_arrival_us=None if first is None else first_arrival, covered=covered)


def _newest_of_each(
    pending: BatchRows, arrived: _ArrivalOrder, layout: Layout, lost: Callable[[BatchRows], None]
) -> BatchRows:
    """Return several rows of a key; each represents itself alone."""
    codes, _, time, order = arrived
    deleted = np.zeros(len(codes), dtype=np.bool_) if pending.deleted is None else pending.deleted
    deleted = deleted if order is None else deleted[order]
    assert time is not None
    kept = newest_of_each(codes, time, np.arange(len(codes)), deleted, layout.history.count or 1)
    _tell(pending, kept.ties, arrived, layout, lost)
    chosen = kept.stays
    if order is not None:
        chosen = np.empty_like(kept.stays)
        chosen[order] = kept.stays
    return pending.chosen(chosen)


def _tell(
    pending: BatchRows, ties: Int64s, arrived: _ArrivalOrder, layout: Layout, lost: Callable[[BatchRows], None]
) -> None:
    """Pass the rows that lost in a conflict to `lost`; ties are positions in the order of arrival."""
    conflicting = lost_within(pending, ties if arrived.order is None else arrived.order[ties], layout)
    if conflicting is not None:
        lost(conflicting)


def _arrived(pending: BatchRows, layout: Layout) -> _ArrivalOrder:
    codes, size = key_codes(columns_at(pending.rows, layout.key))
    time = places(columns_at(pending.rows, layout.order)) if layout.order else None
    order = _arrival_order(pending, layout)
    if order is not None:
        codes = codes[order]
        time = None if time is None else time[order]
    return _ArrivalOrder(codes, size, time, order)


def _arrival_order(pending: BatchRows, layout: Layout) -> Int64s | None:
    """Return positions in the order of arrival; None if the rows are in that order already."""
    seq = seq_of(pending.rows)
    if not layout.order and pending.arrival_us is not None:
        return np.lexsort((seq, pending.arrival_us))
    if bool(np.all(seq[1:] >= seq[:-1])):
        return None
    return np.argsort(seq, kind="stable")
