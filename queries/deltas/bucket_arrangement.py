"""Arrangements whose large keys lie in buckets: a change reads about the square root of what its key has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...operators.grouped import buckets
from .arrangement import Arrangement
from .numbers import key_numbers
from .state import State
from .zsets import int64s

__all__ = ["BucketArrangement"]

_ROWS, _BITS = "__rows", "__bits"
_SIZES = pa.schema([("__key", pa.int64()), (_ROWS, pa.int64()), (_BITS, pa.int64())])


class BucketArrangement:
    """The rows of an operator's state by key; those of a large key are in buckets by their values.

    A step calls :meth:`read` once, and :meth:`write` at most once. ``columns`` divide the rows of a key into buckets;
    ``numbers_of`` returns the numbers of rows' keys.

    State: the rows, and the number of rows and of buckets of each large key.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Sequence[str],
        numbers_of: Callable[[pl.DataFrame], Int64s],
        state: State,
        part: str,
    ) -> None:
        self._columns = list(columns)
        self._numbers_of = numbers_of
        self._arrangement: Arrangement = state.arrangement(part, schema)
        self._sizes: Arrangement = state.arrangement(f"sizes of {part}", _SIZES)
        self._last: _Read

    @property
    def rows(self) -> int:
        return self._arrangement.rows

    def read_all(self) -> pl.DataFrame:
        return self._arrangement.read_all()

    def read(self, changes: pl.DataFrame, own: Int64s, whole: Int64s) -> tuple[pl.DataFrame, Int64s]:
        """Return the rows that may equal a change, and all rows of the ``whole`` keys, with the numbers of their keys.

        ``own`` has the number of each change's key.
        """
        keys = np.unique(np.concatenate([own, whole]))
        rows, bits = np.zeros((2, len(keys)), dtype=np.int64)
        if not self._sizes.rows:
            found = self._arrangement.read(keys)
            numbers, is_whole = self._arrangement.numbers, np.ones(len(keys), dtype=np.bool_)
            self._last = _Read(keys, rows, bits, is_whole, found, numbers, np.ones(found.height, dtype=np.bool_))
            return found, numbers
        sizes = self._sizes.read(keys)
        at = np.searchsorted(keys, self._sizes.numbers)
        rows[at], bits[at] = int64s(sizes, _ROWS), int64s(sizes, _BITS)
        is_whole = np.isin(keys, whole) | (bits == 0) | (buckets.buckets_for(rows, bits) != bits)
        of_own = np.searchsorted(keys, own)
        wanted = buckets.pairs(of_own, self._buckets(changes, bits[of_own]))
        every = np.flatnonzero(is_whole)
        wanted = np.union1d(wanted, buckets.every_bucket(every, bits[every]))
        found = self._arrangement.read(buckets.place_of(keys[wanted >> buckets.BITS], wanted & buckets.LOW))
        numbers = self._numbers_of(found)
        at = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
        # Buckets of two keys may have the same place.
        mine = (keys[at] == numbers) & np.isin(buckets.pairs(at, self._buckets(found, bits[at])), wanted)
        self._last = _Read(keys, rows, bits, is_whole, found, numbers, mine)
        return found.filter(pl.Series(mine)), numbers[mine]

    def write(self, rows: pl.DataFrame, numbers: Int64s, replaced: npt.NDArray[np.bool_]) -> None:
        """Put new and changed rows, with the numbers of their keys, in place of some of the rows that were read."""
        last = self._last
        gone = last.mine.copy()
        gone[gone] = replaced
        if not self._sizes.rows and last.found.height + rows.height <= buckets.ROWS_OF_BUCKET:
            self._arrangement.write(rows, numbers, gone)
            return
        stays, comes = last.keys_of(last.mine), np.searchsorted(last.keys, numbers)
        count = len(last.keys)
        counted = np.where(last.bits == 0, np.bincount(stays, minlength=count), last.rows)
        after = counted + np.bincount(comes, minlength=count) - np.bincount(last.keys_of(gone), minlength=count)
        bits = np.where(last.is_whole, buckets.buckets_for(after, last.bits), last.bits)
        moves = last.mine & ~gone
        moves[last.mine] &= (bits != last.bits)[stays]
        moved = last.keys_of(moves)
        rows = pl.concat([rows.select(last.found.columns), last.found.filter(pl.Series(moves))])
        at = np.concatenate([comes, moved])
        places = buckets.place_of(last.keys[at], self._buckets(rows, bits[at]))
        self._arrangement.write(rows, places, gone | moves)
        if ((bits > 0) | (last.bits > 0)).any():
            if not self._sizes.rows:
                self._sizes.read(last.keys)
            self._write_sizes(last.keys, after, bits)

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> bool:
        """Remove the rows that do not stay; return whether there were any."""
        if self.rows == 0:
            return False
        rows = self._arrangement.read_all()
        there = stays(rows)
        if there.all():
            return False
        rows = rows.filter(pl.Series(there))
        keys, at, sizes = np.unique(self._numbers_of(rows), return_inverse=True, return_counts=True)
        bits = buckets.buckets_for(sizes, np.zeros(len(keys), dtype=np.int64))
        self._arrangement.write(rows, buckets.place_of(keys[at], self._buckets(rows, bits[at])))
        self._sizes.read_all()
        self._write_sizes(keys, sizes, bits)
        return True

    def _write_sizes(self, keys: Int64s, rows: Int64s, bits: Int64s) -> None:
        large = bits > 0
        columns = {"__key": keys[large], _ROWS: rows[large], _BITS: bits[large]}
        self._sizes.write(pl.DataFrame(columns), keys[large])

    def _buckets(self, rows: pl.DataFrame, bits: Int64s) -> Int64s:
        """Return the bucket of each row; its key is divided into 2^bits."""
        found = np.zeros(rows.height, dtype=np.int64)
        large = np.flatnonzero(bits)
        if len(large):
            hashes = buckets.mixed(key_numbers(rows.select(self._columns)[large], self._columns))
            found[large] = buckets.bucket_of(hashes, bits[large])
        return found


@dataclass(frozen=True)
class _Read:
    """The keys and rows of the last read. ``rows`` and ``bits`` are 0 for keys that are not large."""

    keys: Int64s  # sorted numbers
    rows: Int64s  # by key, before the step
    bits: Int64s
    is_whole: npt.NDArray[np.bool_]  # by key: all its rows were read
    found: pl.DataFrame
    numbers: Int64s  # by row
    mine: npt.NDArray[np.bool_]  # by row: wanted, and not at the place of a wanted bucket by chance

    def keys_of(self, rows: npt.NDArray[np.bool_]) -> Int64s:
        """Return the positions of the keys of some rows."""
        return np.searchsorted(self.keys, self.numbers[rows])
