"""The newest rows of each key in a batch, by (time, arrival), or by arrival alone without a time column."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...core.rows.columns import columns_at
from ...core.rows.conflicts import ties_within
from ...core.rows.newest import NewestPerKey, key_codes
from ...core.rows.sort_keys import places
from ..spec.history import newest_of_each
from ..spec.layout import Layout
from .conflicts import lost_within
from .pending import Int64s, Pending, seq_of

__all__ = ["newest_rows", "unheard"]


def unheard(rows: Pending) -> None:
    """Drop rows that lost in a conflict."""
    del rows


class _Arrived(NamedTuple):
    """Keys and times in the order of arrival."""

    codes: Int64s
    size: int
    time: Int64s | None
    order: Int64s | None  # the rows' positions; None if they are in that order


def newest_rows(pending: Pending, layout: Layout, lost: Callable[[Pending], None] = unheard) -> Pending:
    """Return the newest row of each key, which represents the key's other rows, or the rows that the table keeps.

    `lost` receives the rows that lost in a conflict.
    """
    if pending.rows.num_rows == 0 or layout.keep.count is None:
        return pending
    arrived = _arrived(pending, layout)
    if arrived.time is not None and layout.keep.count > 1:
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


def _newest_of_each(pending: Pending, arrived: _Arrived, layout: Layout, lost: Callable[[Pending], None]) -> Pending:
    """Return several rows of a key; each represents itself alone."""
    codes, _, time, order = arrived
    deleted = np.zeros(len(codes), dtype=np.bool_) if pending.deleted is None else pending.deleted
    deleted = deleted if order is None else deleted[order]
    assert time is not None
    kept = newest_of_each(codes, time, np.arange(len(codes)), deleted, layout.keep.count or 1)
    _tell(pending, kept.ties, arrived, layout, lost)
    chosen = kept.stays
    if order is not None:
        chosen = np.empty_like(kept.stays)
        chosen[order] = kept.stays
    return pending.chosen(chosen)


def _tell(pending: Pending, ties: Int64s, arrived: _Arrived, layout: Layout, lost: Callable[[Pending], None]) -> None:
    """Pass the rows that lost in a conflict to `lost`; ties are positions in the order of arrival."""
    conflicting = lost_within(pending, ties if arrived.order is None else arrived.order[ties], layout)
    if conflicting is not None:
        lost(conflicting)


def _arrived(pending: Pending, layout: Layout) -> _Arrived:
    codes, size = key_codes(columns_at(pending.rows, layout.key))
    time = places(columns_at(pending.rows, layout.order)) if layout.order else None
    order = _arrival_order(pending, layout)
    if order is not None:
        codes = codes[order]
        time = None if time is None else time[order]
    return _Arrived(codes, size, time, order)


def _arrival_order(pending: Pending, layout: Layout) -> Int64s | None:
    """Return positions in the order of arrival; None if the rows are in that order already."""
    seq = seq_of(pending.rows)
    if not layout.order and pending.arrival_us is not None:
        return np.lexsort((seq, pending.arrival_us))
    if bool(np.all(seq[1:] >= seq[:-1])):
        return None
    return np.argsort(seq, kind="stable")
