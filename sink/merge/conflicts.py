"""Conflicts: two rows with one key and one time that differ. The later arrival stays; the other is counted, and can be
kept.

A row that comes again as it was is none: feeds that deliver at least once repeat rows. A row and a deletion of one time
are; two deletions are not. Pairs are counted as they meet: rows of a batch with the newest of their key, and that one
with what the table holds. So rows that are older than the newest of their key are not compared: no reader would have
seen their outcome.
"""

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
    """Return which pairs of rows (or deletions) of one key and one time conflict."""
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
    """Return the rows that lost to another row of theirs in a conflict; None if there are none.

    Parameters
    ----------
    rows
    pairs
        Positions of the row that stays, and of one of its key and time that goes.
    layout
        The table's layout.
    """
    lost = pairs[lost_pairs(rows, pairs[:, 0], rows, pairs[:, 1], layout), 1]
    return rows.take(lost) if len(lost) else None


def lost_against(new: Pending, contest: Contest, held: Pending, layout: Layout) -> list[Pending]:
    """Return the rows that lost in a conflict between rows of a batch and held ones, of either side.

    Parameters
    ----------
    new
        The batch's rows.
    contest
        The comparison of these with the held ones.
    held
        The rivals of the tied rows, in their order.
    layout
        The table's layout.
    """
    met = np.flatnonzero(contest.tied)
    found = np.flatnonzero(lost_pairs(new, met, held, np.arange(len(met)), layout))
    wins = contest.won[met[found]]
    sides = [held.take(found[wins]), new.take(met[found[~wins]])]
    return [side for side in sides if side.rows.num_rows]


def _deleted(rows: Pending) -> Mask:
    return np.zeros(rows.rows.num_rows, dtype=np.bool_) if rows.deleted is None else rows.deleted
