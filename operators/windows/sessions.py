"""Session windows: rows of a key, each at most a gap after the one before."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.rows.buckets import spark_hash
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask, Whole, affine, as_int64, floor_div
from ..aggregates.algebra import Aggregates
from ..state.entries import Keys
from .kinds import Windows

START, LAST = "__upstream_start", "__upstream_last"
"""The columns of the first and the last time of a session's rows."""


@dataclasses.dataclass(frozen=True)
class SessionWindows(Windows):
    """The windows that single rows open, from their time until the gap after it; a window's id is its row's time.

    Windows of a key that overlap or touch are one session, as in Spark (``session_window``) and Flink (``SESSION``).
    """

    word = "session"

    gap: int  # in units of x; rows that are exactly this far apart are in one session

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        return as_int64(w), affine(w, 1, 1)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        times = as_int64(x)
        return times, times

    def start_and_end(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the row's time, and the gap after it."""
        return as_int64(w), affine(w, 1, self.gap)

    def last_instant(self, w: Whole) -> Int64s:
        return affine(w, 1, self.gap - 1)

    def last_complete(self, bound: Whole) -> Int64s:
        """Return the greatest time of a last row that no other row can join any more."""
        return floor_div(bound, 1, shift=-self.gap, add=-1, saturate=True)


@dataclasses.dataclass(frozen=True)
class Sessions:
    """Sessions, or parts of them. Parts merge in any order with the same result."""

    keys: pa.Table
    start: Int64s  # times of their first rows
    last: Int64s  # times of their last rows
    state: pa.Table  # of the aggregates

    def __len__(self) -> int:
        return len(self.start)

    def take(self, which: Mask | Int64s) -> Sessions:
        at = pa.array(np.flatnonzero(which) if which.dtype == np.bool_ else which)
        return Sessions(self.keys.take(at), self.start[which], self.last[which], self.state.take(at))

    def table(self) -> pa.Table:
        made = self.keys.append_column(START, pa.array(self.start)).append_column(LAST, pa.array(self.last))
        for name in self.state.column_names:
            made = made.append_column(name, self.state.column(name))
        return made

    @classmethod
    def of(cls, table: pa.Table, key: Sequence[str], state: Sequence[str]) -> Sessions:
        """Return the sessions of a table with the columns of the key, of the state, :data:`START` and :data:`LAST`."""
        start, last = (table.column(name).to_numpy() for name in (START, LAST))
        return cls(table.select(list(key)), start, last, table.select(list(state)))

    @classmethod
    def concat(cls, parts: Sequence[Sessions]) -> Sessions:
        return cls(
            pa.concat_tables([part.keys for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.last for part in parts]),
            pa.concat_tables([part.state for part in parts]),
        )

    @classmethod
    def lifted(
        cls, aggregates: Aggregates, rows: pa.Table, key: Sequence[str], times: Int64s, gap: int
    ) -> tuple[Sessions, Int64s]:
        """Return the sessions of some rows, and the position of each row's session among them."""
        keys = rows.select(list(key))
        numbers = Keys([keys])
        of_row, first, size = joined(numbers.codes[0], times, times, gap)
        start = np.full(size, HIGHEST, dtype=np.int64)
        last = np.full(size, LOWEST, dtype=np.int64)
        np.minimum.at(start, of_row, times)
        np.maximum.at(last, of_row, times)
        return cls(keys.take(pa.array(first)), start, last, aggregates.lift(rows, of_row, size)), of_row

    def merged(self, aggregates: Aggregates, gap: int) -> tuple[Sessions, Int64s, Int64s]:
        """Merge the parts of each session.

        Return the sessions in the order of keys, then of time, the session of each part, and the sessions' key codes.
        """
        numbers = Keys([self.keys]).codes[0]
        of_part, first, size = joined(numbers, self.start, self.last, gap)
        start = np.full(size, HIGHEST, dtype=np.int64)
        last = np.full(size, LOWEST, dtype=np.int64)
        np.minimum.at(start, of_part, self.start)
        np.maximum.at(last, of_part, self.last)
        several = np.bincount(of_part, minlength=size) > 1
        state = self.state.take(pa.array(first))
        if several.any():  # most sessions of a page get nothing: their state stays as it is
            place = np.cumsum(several) - 1
            members = np.flatnonzero(several[of_part])
            merged = aggregates.combine(
                self.state.take(pa.array(members)), place[of_part[members]], int(np.count_nonzero(several))
            )
            chosen = np.where(several, size + place, np.arange(size))
            state = pa.concat_tables([state, merged]).take(pa.array(chosen))
        return Sessions(self.keys.take(pa.array(first)), start, last, state), of_part, numbers[first]


def joined(codes: Int64s, start: Int64s, last: Int64s, gap: int) -> tuple[Int64s, Int64s, int]:
    """Find the session of each part: parts of a key that are at most `gap` apart are in one session.

    Return the session of each part, the earliest part of each session, and the number of sessions. Sessions are
    numbered in the order of keys, then of time. `codes` are the parts' keys, from 0.
    """
    n = len(codes)
    order = np.lexsort((start, codes))
    codes, start = codes[order], start[order]
    # The greatest `last` of a key so far: of its ranks, so that keys and ranks are one number.
    known, rank = np.unique(last[order], return_inverse=True)
    reach = np.maximum.accumulate(codes * max(len(known), 1) + rank) % max(len(known), 1)
    begins = np.ones(n, dtype=np.bool_)
    # A difference of two int64 needs 65 bits: it is never negative where it counts, so it fits without a sign.
    before, now = known[reach[:-1]], start[1:]
    apart = (now > before) & (now.view(np.uint64) - before.view(np.uint64) > np.uint64(gap))
    begins[1:] = (codes[1:] != codes[:-1]) | apart
    of_part = np.empty(n, dtype=np.int64)
    of_part[order] = np.cumsum(begins) - 1
    return of_part, order[begins], int(np.count_nonzero(begins))


def ended(last: Int64s, bound: Int64s, gap: int, lateness: int = 0) -> Mask:
    """Return which sessions no further row can join, once all rows before the bound of their key have arrived.

    A bound is :data:`LOWEST` before any is known, :data:`HIGHEST` if all rows have arrived. `lateness` keeps sessions
    open longer.
    """
    through = LOWEST + gap + lateness
    return (bound == HIGHEST) | (last < np.maximum(bound, through) - gap - lateness)


def key_numbers(keys: pa.Table) -> Int64s:
    """Return the number of each key by which its sessions are found in a shard's pages."""
    return spark_hash(keys.columns).astype(np.int64)
