"""The newest rows of each key in a batch, by (time, arrival), or by arrival alone without a time column.

With partial updates, each part of a row is the newest one's of the key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.columns import column_at, columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import NewestPerKey, differing, key_codes, ties_within
from ...core.rows.sort_keys import ordered, places, places_of_both
from ...delta_format.latest_table import ORDERS, SEQ
from ..spec.history import newest_of_each
from ..spec.layout import Layout
from .batch_rows import NO_SEQ, UNKNOWN, BatchRows, concat_pending, int64s, seq_in_order, seq_of


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
    """Return the newest row of each key, or the rows that the table keeps. `lost` receives losers of conflicts."""
    if pending.rows.num_rows == 0 or layout.history.count is None:
        return pending
    if layout.partial:
        return _newest_parts(pending, layout, lost)
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


class PartOrder(NamedTuple):
    """The order of rows in one part, by which the last one decides it."""

    at: Int64s  # the value of the ordering column, as in :func:`~upstream.core.rows.sort_keys.ordered`
    seq: Int64s  # the arrival number
    decides: Mask  # rows that have a say: neither a deletion nor without a value


class PartContest:
    """The newest row and deletion of each key, and the row that decides each part of the key's row.

    The first `held` rows are held; others without an arrival number came later. A deletion removes all older parts of
    its key. The outcome is a function of the set of rows, and :meth:`rows` of some of them stand for these. So it
    depends neither on the order of rows nor on their batches.
    """

    def __init__(self, rows: BatchRows, held: int, layout: Layout) -> None:
        self._rows = rows.rows
        self._layout = layout
        self.held = held
        codes, _ = key_codes(columns_at(rows.rows, layout.key))
        distinct, self.key = np.unique(codes, return_inverse=True)
        self.keys = len(distinct)
        self.deleted = _deleted(rows)
        at, seq = ordered(column_at(rows.rows, layout.order[0])), seq_in_order(rows.rows, held)
        self._whole = PartOrder(at, seq, np.ones(len(at), dtype=np.bool_))
        self._sorted = np.lexsort((seq, at))  # it is stable: of equal rows the later one stays later
        self.deletion = self._last(self._whole, self.deleted)
        self.newest = self._last(self._whole, self._whole.decides)
        self._orders = self._part_orders()
        self.parts = [self._last(order, order.decides & self._outlives(order)) for order in self._orders]
        self.lives = np.logical_or.reduce([~self.deleted[self.newest], *(part >= 0 for part in self.parts)])

    def wins(self) -> Mask:
        """Return which rows are the newest of their key, decide a part of it, or are its newest deletion."""
        found = np.zeros(len(self.key), dtype=np.bool_)
        for winners in (self.newest, self.deletion, *self.parts):
            found[winners[winners >= 0]] = True
        return found

    def differs(self, before: Int64s) -> Mask:
        """Return which keys have another row than the held one in `before`, or -1 for keys without one."""
        was = before >= 0
        at, seq = (values[self.newest] != values[before] for values in self._whole[:2])
        found = self.newest >= self.held
        found |= was & self.deleted[self.newest] & (at | seq)
        for order, part in zip(self._orders, self.parts, strict=True):
            found |= (part >= self.held) | (was & order.decides[before] & (part < 0))
        return np.where(was & self.lives, found, was != self.lives)

    def rows(self, keys: Int64s) -> pa.Table:
        """Return the row of some keys, each of which has one."""
        newest = self.newest[keys]
        whole, left = pa.array(newest), pa.array(newest, mask=self.deleted[newest])
        fixed = {*self._layout.deciding}
        of_part = {
            name: pa.array(part[keys], mask=part[keys] < 0)
            for part, (columns, _, _) in zip(self.parts, self._layout.parts, strict=True)
            for name in columns
        }
        taken = [
            self._other_orders(keys, field.type)
            if field.name == ORDERS
            else self._rows.column(field.name).take(whole if field.name in fixed else of_part.get(field.name, left))
            for field in self._rows.schema
        ]
        return pa.table(taken, schema=self._rows.schema)

    def lost(self) -> Int64s:
        """Return the rows that lost a part in a conflict: to one of the same order, with other content."""
        payload = {name for name, _ in self._layout.fields} - {*self._layout.deciding}
        apart = {name for part in self._layout.parts for name in part.columns}
        found = np.zeros(len(self.key), dtype=np.bool_)
        contests = [(self._whole, self.newest, sorted(payload - apart)), *zip(
            self._orders, self.parts, ([*part.columns] for part in self._layout.parts), strict=True
        )]  # fmt: skip
        for order, winners, names in contests:
            winner = winners[self.key]
            tied = order.decides & (winner >= 0) & (order.at == order.at[winner]) & (winner != np.arange(len(winner)))
            tied &= (order.seq != order.seq[winner]) | ~_is_numbered(order.seq)
            rows = np.flatnonzero(tied & (np.maximum(winner, np.arange(len(winner))) >= self.held))
            gone, gone_too = self.deleted[rows], self.deleted[winner[rows]]
            found[rows[gone != gone_too]] = True
            rows = rows[~gone & ~gone_too]
            found[rows[differing(self._rows, rows, self._rows, winner[rows], names)]] = True
        return np.flatnonzero(found)

    def _last(self, order: PartOrder, chosen: Mask) -> Int64s:
        """Return each key's last chosen row in an order, or -1."""
        if order.at is self._whole.at and order.seq is self._whole.seq:
            rows = self._sorted[chosen[self._sorted]]
        else:
            rows = np.flatnonzero(chosen)
            rows = rows[np.lexsort((order.seq[rows], order.at[rows]))]
        last = np.full(self.keys, -1)
        last[self.key[rows]] = rows  # the last of equal indices is the one that stays
        return last

    def _outlives(self, order: PartOrder) -> Mask:
        """Return which rows come, in a part's order, after the newest deletion of their key."""
        deletion = self.deletion[self.key]
        at, seq = self._whole.at[deletion], self._whole.seq[deletion]
        later = (order.seq > seq) | ((order.seq == seq) & (np.arange(len(seq)) > deletion))
        return (deletion < 0) | (order.at > at) | ((order.at == at) & later)

    def _part_orders(self) -> list[PartOrder]:
        recorded = dict(self._recorded())
        found: list[PartOrder] = []
        for part in self._layout.parts:
            at, seq, _ = self._whole
            decides = ~self.deleted
            if part.by is not None:
                column = self._rows.column(part.by)
                decides = decides & column.is_valid().to_numpy()
                zero = pa.scalar(0, pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
                at = ordered(pc.fill_null(column, zero.cast(column.type)))
            if part.by_value:
                decides = decides & self._rows.column(part.columns[0]).is_valid().to_numpy()
            if part.name in recorded:
                rows, *others = recorded[part.name]
                at, seq = at.copy(), seq.copy()
                at[rows], seq[rows] = others
            found.append(PartOrder(at, seq, decides))
        return found

    def _recorded(self) -> Iterator[tuple[str, tuple[Int64s, Int64s, Int64s]]]:
        """Yield the parts that came from other rows of their keys: the rows, and the part's order in each."""
        orders = self._rows.column(ORDERS).combine_chunks()
        values = pc.list_flatten(orders)
        if not len(values):
            return
        rows = pc.list_parent_indices(orders).to_numpy()
        part, at, seq = (pa.chunked_array([each]) for each in values.flatten())
        at, seq = int64s(at, 0), int64s(seq, NO_SEQ).copy()
        seq[(rows >= self.held) & (seq == NO_SEQ)] = UNKNOWN
        for name in part.unique().to_pylist():
            mine = pc.equal(part, name).to_numpy()
            yield name, (rows[mine], at[mine], seq[mine])

    def _other_orders(self, keys: Int64s, kind: pa.DataType) -> pa.Array:
        """Return the orders of the parts that do not come from the newest rows of some keys."""
        seq = _numbers(self._whole.seq[self.newest[keys]])
        parts = self._layout.parts
        if not parts:
            return pa.nulls(len(keys), kind)
        own = {part.by: (order, winners[keys]) for part, order, winners in zip(
            parts, self._orders, self.parts, strict=True
        ) if not part.by_value}  # fmt: skip
        entries: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
        for number, (part, order, winners) in enumerate(zip(parts, self._orders, self.parts, strict=True)):
            winner = winners[keys]
            by_order, by_row = own.get(part.by, (self._whole, self.newest[keys]))
            at, number_of = order.at[winner], _numbers(order.seq[winner])
            other = (by_row < 0) | (at != by_order.at[by_row]) | (number_of != seq)
            rows = np.flatnonzero((winner >= 0) & other)
            entries.append((rows, np.full(len(rows), number), at[rows], number_of[rows]))
        rows, number, at, number_of = (np.concatenate(each) for each in zip(*entries, strict=True))
        order = np.argsort(rows, kind="stable")
        count = np.bincount(rows, minlength=len(keys))
        offsets = pa.array(np.concatenate([[0], np.cumsum(count)]), pa.int32())
        names = pa.array([part.name for part in parts]).take(pa.array(number[order]))
        numbers = pa.array(number_of[order], mask=number_of[order] == NO_SEQ)
        values = pa.StructArray.from_arrays([names, pa.array(at[order]), numbers], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=pa.array(count == 0))


def _is_numbered(seq: Int64s) -> Mask:
    return (seq != NO_SEQ) & (seq != UNKNOWN)


def _numbers(seq: Int64s) -> Int64s:
    """Return arrival numbers as a table holds them."""
    return np.where(seq == UNKNOWN, NO_SEQ, seq)


def _newest_parts(pending: BatchRows, layout: Layout, lost: Callable[[BatchRows], None]) -> BatchRows:
    """Return a row and a deletion for each key, which represent all of the key's."""
    contest = PartContest(pending, 0, layout)
    if contest.keys == pending.rows.num_rows:
        return pending
    losers = contest.lost()
    if len(losers):
        lost(pending.take(losers))
    lives, gone = np.flatnonzero(contest.lives), np.flatnonzero(contest.deletion >= 0)
    rows = dataclasses.replace(pending.take(contest.newest[lives]), rows=contest.rows(lives), deleted=None)
    deletions = pending.take(contest.deletion[gone])
    for part, keys, chosen in ((rows, lives, ~contest.deleted), (deletions, gone, contest.deleted)):
        total, first = np.zeros(contest.keys, dtype=np.int64), np.full(contest.keys, UNKNOWN)
        np.add.at(total, contest.key[chosen], pending.covered[chosen])
        part.covered = total[keys]
        if pending.first_arrival_us is not None:
            np.minimum.at(first, contest.key, pending.first_arrival_us)
            part.first_arrival_us = first[keys]
    # Deletions come first: a row that has the same time and no number is the later one.
    return concat_pending([each for each in (deletions, rows) if len(each.covered)])
