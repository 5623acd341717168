"""The newest row of each key, and rows that conflict, by array operations: no loop over rows or keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import as_array
from .exact_integers import Int64s, Mask

# Integer keys whose range is at most this many times the number of rows are their own codes: no hashing.
_DENSE = 4


def key_codes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Int64s, int]:
    """Return a code of at least 0 for each row, equal iff keys (nulls too) are, and one more than the largest."""
    if not columns:
        raise ValueError("key_codes needs at least one column; with no key there is one key")
    codes, size = _codes(columns[0])
    for column in columns[1:]:
        more, more_size = _codes(column)
        # Each size is below four times the rows: the product of two overflows from half a billion rows on, which no
        # batch has.
        codes, size = _compact(codes * more_size + more, size * more_size)
    return codes, size


def newest_per_key(codes: Int64s, size: int, time: Int64s | None, ties: Iterable[Int64s] = ()) -> Int64s:
    """Return the increasing positions of the keys' newest rows; rows are in arrival order.

    A row replaces an earlier one of its key unless its time is older. Of equal times, the greater value of the first of
    `ties` that differs wins, then the later arrival; `ties` are read only as far as needed. Without times, arrival
    alone decides.
    """
    place = np.full(size, -1)
    if time is None:
        place[codes] = np.arange(len(codes))  # the last of equal indices is the one that stays
    else:
        candidates = _greatest(np.arange(len(codes)), codes, size, time)
        place[codes[candidates]] = candidates
        for values in ties:
            candidates = _greatest(candidates, codes, size, values)
            place[codes[candidates]] = candidates
            if (place[codes[candidates]] == candidates).all():
                break
    chosen = np.zeros(len(codes), dtype=np.bool_)
    chosen[place[place >= 0]] = True
    return np.flatnonzero(chosen)  # in order without sorting


def _greatest(rows: Int64s, codes: Int64s, size: int, values: Int64s) -> Int64s:
    """Return those of some rows whose value is the greatest of their key among these rows."""
    best = np.full(size, np.iinfo(np.int64).min)
    mine, their = codes[rows], values[rows]
    np.maximum.at(best, mine, their)
    return rows[their == best[mine]]


class NewestPerKey:
    """The newest row of each key, with the oldest first arrival of the key's rows and the sum of their updates.

    `codes` and `size` are from :func:`key_codes`; `rows` has the increasing positions of the rows that stay.
    """

    def __init__(
        self,
        codes: Int64s,
        size: int,
        time: Int64s | None,
        first_arrival_us: Int64s | int,
        covered: Int64s | int,
        ties: Iterable[Int64s] = (),
    ) -> None:
        self.rows = newest_per_key(codes, size, time, ties)
        kept = codes[self.rows]
        if isinstance(first_arrival_us, int):
            self.first_arrival_us = np.full(len(kept), first_arrival_us)
        else:
            oldest = np.full(size, np.iinfo(np.int64).max)
            np.minimum.at(oldest, codes, first_arrival_us)
            self.first_arrival_us = oldest[kept]
        if isinstance(covered, int):
            self.covered = np.bincount(codes)[kept] * covered
        else:
            total = np.zeros(size, dtype=np.int64)
            np.add.at(total, codes, covered)
            self.covered = total[kept]


_Rows = TypeVar("_Rows")
# Rows that are held before they are reduced to one for each key.
_BRING_TOGETHER = 500_000


class NewestSoFar(Generic[_Rows]):
    """The newest rows of parts that come one by one, combined only once they have doubled.

    So a part does not cost all keys, and memory is bounded by the keys. `combine` returns the newest rows of some
    parts, of which each has at most one row for a key.
    """

    def __init__(self, combine: Callable[[list[_Rows]], _Rows], size: Callable[[_Rows], int]) -> None:
        self._combine = combine
        self._size = size
        self._parts: list[_Rows] = []
        self._count = 0
        self._limit = _BRING_TOGETHER

    def add(self, rows: _Rows) -> None:
        self._parts.append(rows)
        self._count += self._size(rows)
        if self._count > self._limit:
            kept = self.newest()
            self._parts, self._count = [kept], self._size(kept)
            self._limit = max(_BRING_TOGETHER, 2 * self._count)

    def newest(self) -> _Rows:
        """Return the newest rows of all parts; there must be one."""
        return self._parts[0] if len(self._parts) == 1 else self._combine(self._parts)


def _codes(column: pa.Array | pa.ChunkedArray) -> tuple[Int64s, int]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if array.null_count:
        codes, size = _codes(array.drop_null())
        all_codes = np.full(len(array), size)
        all_codes[array.is_valid().to_numpy(zero_copy_only=False)] = codes
        return all_codes, size + 1
    if len(array) == 0:
        return np.empty(0, dtype=np.int64), 0
    if pa.types.is_integer(array.type):
        values = np.asarray(array.to_numpy(), dtype=np.int64)
        low, high = int(values.min()), int(values.max())
        if high - low < max(_DENSE * len(values), 1024):
            return values - low, high - low + 1
    if pa.types.is_floating(array.type):
        array = _canonical_floats(array)
    if pa.types.is_struct(array.type):
        return key_codes(array.flatten())
    encoded = array.dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _canonical_floats(array: pa.Array) -> pa.Array:
    # Spark groups -0.0 with 0.0, and all NaNs together.
    values = array.to_numpy() + 0.0
    return pa.array(np.where(np.isnan(values), np.nan, values))


def _compact(codes: Int64s, size: int) -> tuple[Int64s, int]:
    if size < max(_DENSE * len(codes), 1024):
        return codes, size
    encoded = pa.array(codes).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def ties_within(codes: Int64s, keys: int, time: Int64s | None, newest: Int64s) -> Int64s:
    """Return pairs of a batch's rows with one key and one time: the key's newest row, and one that it supersedes.

    `codes` and `keys` are from :func:`~upstream.core.rows.newest.key_codes`; `newest` has the positions of the newest
    rows. Without times there are no ties.
    """
    if time is None:
        return np.empty((0, 2), dtype=np.int64)
    winner = np.zeros(keys, dtype=np.int64)
    winner[codes[newest]] = newest
    mine = winner[codes]
    tied = np.flatnonzero((time == time[mine]) & (mine != np.arange(len(codes))))
    return np.stack([mine[tied], tied], axis=1)


def differing(left: pa.Table, at: Int64s, right: pa.Table, other: Int64s, names: Sequence[str]) -> Mask:
    """Return which pairs of rows, `left[at]` and `right[other]`, differ in a column; nulls are equal, and NaNs."""
    differ = np.zeros(len(at), dtype=np.bool_)
    if len(at) == 0:
        return differ
    one, two = left.select(names).take(pa.array(at)), right.select(names).take(pa.array(other))
    for name in names:
        differ |= _unequal(as_array(one.column(name)), as_array(two.column(name)))
    return differ


def _unequal(one: pa.Array, two: pa.Array) -> Mask:
    here, there = (array.is_valid().to_numpy(zero_copy_only=False) for array in (one, two))
    differ = np.asarray(here != there, dtype=np.bool_)
    kind = one.type
    if pa.types.is_struct(kind):
        for left, right in zip(one.flatten(), two.flatten(), strict=True):
            differ |= _unequal(left, right)
    elif pa.types.is_nested(kind):
        differ |= _unequal_lists(one, two, here & there)
    else:
        unequal = pc.fill_null(pc.not_equal(one, two), False)
        if pa.types.is_floating(kind):
            unequal = pc.and_not(unequal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(two)), False))
        differ |= unequal.to_numpy(zero_copy_only=False)
    return differ


def _unequal_lists(one: pa.Array, two: pa.Array, both: Mask) -> Mask:
    """Return which lists or maps differ in length or in any element. Spark keeps the order of a map's entries."""
    differ = np.zeros(len(one), dtype=np.bool_)
    sizes = [pc.fill_null(pc.list_value_length(_as_list(array)), 0).to_numpy() for array in (one, two)]
    differ[both & (sizes[0] != sizes[1])] = True
    rows = np.flatnonzero(both & (sizes[0] == sizes[1]))
    left, right = (_as_list(array.take(pa.array(rows))).flatten() for array in (one, two))
    parent = np.repeat(rows, sizes[0][rows])
    differ[parent[_unequal(left, right)]] = True
    return differ


def _as_list(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
    return array.cast(entries)
