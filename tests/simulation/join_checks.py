"""What joins must have given after each batch, by comparing each row with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from . import oracle
from .inputs import Row
from .join_stages import group_of
from .stages import MismatchError

Pair = tuple[str | None, str | None]
"""Values of the left row and of the right one."""


def check_join(
    given: Sequence[dict[str, Any]],
    read: Sequence[Row],
    ever: Sequence[Row],
    low: int | None,
    stage: dict[str, Any],
    *,
    honest: bool,
) -> None:
    """Each pair is given in the batch that brings its later row; who has no partner is given once that is sure.

    Parameters
    ----------
    given
        All results so far.
    read, ever
        The rows that were read, and those that will ever come.
    low
        How far the source must have come.
    stage
        The join.
    honest
        Whether no row is late.
    """
    how, before, after = stage["how"], stage["before"] * 1000, stage["after"] * 1000
    alone = how in ("semi", "anti")
    got: Counter[Pair] = Counter((row["v"], None if alone else row["v_right"]) for row in given)
    twice = [pair for pair, count in got.items() if count > 1]
    if twice:
        raise MismatchError(f"{how} join: given twice: {twice}")

    def meets(left: Row, right: Row) -> bool:
        return left.key == right.key and -before <= right.time - left.time <= after

    met = [(left, right) for left in read for right in read if meets(left, right)]
    if how == "semi":
        wanted: set[Pair] = {(left.value, None) for left, _ in met}
    else:
        wanted = set() if how == "anti" else {(left.value, right.value) for left, right in met}
    pairs = {pair for pair in got if how == "semi" or None not in pair}
    if pairs - wanted or (honest and pairs != wanted):
        raise MismatchError(f"{how} join: missing {sorted(wanted - pairs)}, too many {sorted(pairs - wanted)}")
    if not honest or how == "semi":
        return
    # Who has no partner among all that will ever come, and from which time on that is not yet sure.
    lonely: dict[Pair, int] = {}
    if how in ("left", "full", "anti"):
        lonely |= {(row.value, None): row.time + after for row in ever if not any(meets(row, each) for each in ever)}
    if how in ("right", "full"):
        lonely |= {(None, row.value): row.time + before for row in ever if not any(meets(each, row) for each in ever)}
    unmatched = set(got) - pairs
    if unmatched - lonely.keys():
        raise MismatchError(f"{how} join: {sorted(map(str, unmatched - lonely.keys()))} have a partner")
    came = {row.value for row in read}
    due = {pair for pair, last in lonely.items() if (pair[0] or pair[1]) in came and low is not None and last < low}
    if due - unmatched:
        raise MismatchError(f"{how} join: without a partner, and not given at {low}: {due - unmatched}")


def newest_pairs(rows: Sequence[Row]) -> dict[int, tuple[int, str, str]]:
    """By key the time and value of its newest row, and the value of its partner, the newest row of the group."""
    groups = oracle.newest(row._replace(key=group_of(row.time)) for row in rows)
    newest = oracle.newest(rows)
    return {key: (time, value, groups[group_of(time)][1]) for key, (time, value) in newest.items()}
