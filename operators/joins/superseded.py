"""Rows that the newest pair of a key does not need: a newer row of the key meets all that they may still meet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.rows.exact_integers import Int64s
from .band import Band
from .matching import SortedRows, equal_keys

__all__ = ["superseded"]


def superseded(rows: SortedRows, names: tuple[str, ...], exact: bool, band: Band, side: int, bound: int) -> Int64s:
    """Return the positions of rows whose later pairs are all older than another pair of their key.

    A newer row of the key meets all that the row may still meet, and each such pair is newer. Rows of one time stay
    together: the later arrival of their pairs counts, and is not known here. No later row of the other side is before
    `bound`.
    """
    numbers, times = rows.numbers, rows.times
    if len(numbers) < 2:
        return np.empty(0, dtype=np.int64)
    other_key = numbers[1:] != numbers[:-1]
    begins = np.flatnonzero(np.concatenate([[True], other_key | (times[1:] != times[:-1])]))
    ends = np.append(begins[1:], len(numbers))
    newer = np.repeat(ends, ends - begins)  # the first row with a later time, if it has the key
    at = np.flatnonzero(newer < len(numbers))
    at = at[numbers[newer[at]] == numbers[at]]
    least = band.partners(side, times)[0]
    # Later rows that meet the older row are not before the first partner of the newer one.
    at = at[least[newer[at]] <= np.maximum(least[at], bound)]
    if not exact and len(at):
        at = at[_same(rows, names, at, newer[at])]
    return at


def _same(rows: SortedRows, names: tuple[str, ...], at: Int64s, newer: Int64s) -> npt.NDArray[np.bool_]:
    return equal_keys(rows.table, names, at, rows.table, names, newer).to_numpy(zero_copy_only=False)
