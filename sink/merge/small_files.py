"""The choice of a bucket's files to merge with a batch's rows: readers stay fast at little cost."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["files_to_fold"]

_FREE_SHARE = 16
_FREE_ROWS = 4096
_BIG_SHARE = 4


def files_to_fold(live: Sequence[int], rows: Sequence[int], fresh: int, *, turn: bool) -> list[int]:
    """Return the positions of the files to rewrite together with the `fresh` new rows.

    Small files are rewritten with any batch, up to a bound that follows the batch's size, so that one small
    file grows. The others wait for the bucket's turn; buckets take turns, so that no batch has to rewrite many.
    In its turn, a file no larger than all smaller ones together joins them, so sizes grow geometrically. A file
    is also rewritten if it has lost a quarter of its rows, or if smaller files have a quarter as many.
    """
    order = sorted(range(len(live)), key=live.__getitem__)
    free = _FREE_SHARE * fresh + _FREE_ROWS
    gathered, chosen = fresh, 0
    for place, at in enumerate(order, start=1):
        joins = live[at] <= gathered if turn else gathered + live[at] <= free
        gathered += live[at]
        if joins or (turn and _BIG_SHARE * (gathered - live[at]) >= live[at]):
            chosen = place
        elif not turn:
            break
    folded = order[:chosen]
    if turn:
        folded += [at for at in order[chosen:] if _BIG_SHARE * (rows[at] - live[at]) >= rows[at]]
    # One file alone, and nothing to join it, stays as it is unless it is to be rid of dead rows.
    if (
        len(folded) == 1
        and not fresh
        and not (turn and _BIG_SHARE * (rows[folded[0]] - live[folded[0]]) >= rows[folded[0]])
    ):
        return []
    return sorted(folded)
