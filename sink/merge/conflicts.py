"""Conflicts: two rows with one key and one time that differ. The later arrival stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.rows.conflicts import differing
from ...delta_format.latest_table import SEQ

if TYPE_CHECKING:
    from ..spec.layout import Layout
    from .contest import Contest
    from .pending import Int64s, Mask, Pending

__all__ = ["lost_against", "lost_pairs", "lost_within"]


def lost_pairs(one: Pending, at: Int64s, two: Pending, other: Int64s, layout: Layout) -> Mask:
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


def lost_within(rows: Pending, pairs: Int64s, layout: Layout) -> Pending | None:
    """Return the rows that lost to another row of the batch in a conflict; None if there are none.

    `pairs` has the positions of the row that stays, and of one of its key and time that leaves.
    """
    lost = pairs[lost_pairs(rows, pairs[:, 0], rows, pairs[:, 1], layout), 1]
    return rows.take(lost) if len(lost) else None


def lost_against(new: Pending, contest: Contest, held: Pending, layout: Layout) -> list[Pending]:
    """Return the rows that lost in a conflict between the batch and held rows, of either side.

    `contest` compares `new` with the held rows. `held` has the rivals of the tied rows, in their order.
    """
    met = np.flatnonzero(contest.tied)
    found = np.flatnonzero(lost_pairs(new, met, held, np.arange(len(met)), layout))
    wins = contest.won[met[found]]
    sides = [held.take(found[wins]), new.take(met[found[~wins]])]
    return [side for side in sides if side.rows.num_rows]


def _deleted(rows: Pending) -> Mask:
    return np.zeros(rows.rows.num_rows, dtype=np.bool_) if rows.deleted is None else rows.deleted
