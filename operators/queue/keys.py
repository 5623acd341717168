"""Which pending row belongs to a key.

A queue asks an index for the places of a batch's keys. Two kinds: keys that are numbered already (simulations), and
keys of any type found by their hash and told apart by comparing them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...frames.newest import key_codes

__all__ = ["Found", "HashedKeys", "KeyIndex", "NumberedKeys", "ties_within"]

Int64s = npt.NDArray[np.int64]

NOWHERE = -1


class Found:
    """A batch's keys, numbered within the batch, and where each already lies.

    Attributes
    ----------
    codes : int64 array of length rows
        The number of each row's key, 0 to keys - 1.
    number : int64 array of length keys
        A number of the key that outlives the batch, for statistics.
    location : int64 array of length keys
        Where its row lies, or -1.
    """

    def __init__(self, codes: Int64s, number: Int64s, location: Int64s) -> None:
        self.codes = codes
        self.number = number
        self.location = location


class KeyIndex(Protocol):
    """Finds the location of keys."""

    def find(self, keys: Any) -> Found:
        """Number the rows' keys and look up where they lie."""
        ...

    def among(self, number: Int64s, locations: Int64s) -> Found:
        """Number the keys of rows that lie somewhere already, each with its key's number."""
        ...

    def put(self, number: Int64s, locations: Int64s) -> None:
        """Keys with these numbers now lie there."""
        ...

    def drop(self, number: Int64s, locations: Int64s) -> None:
        """They do no longer."""
        ...


class NumberedKeys:
    """Keys that are whole numbers from 0.

    Parameters
    ----------
    keys : int
        How many there are.
    """

    def __init__(self, keys: int) -> None:
        self._location = np.full(keys, NOWHERE, dtype=np.int64)

    def find(self, keys: Int64s) -> Found:
        """See :class:`KeyIndex`; `keys` is an int64 array."""
        number, codes = np.unique(keys, return_inverse=True)
        return Found(codes.astype(np.int64, copy=False), number, self._location[number])

    def among(self, number: Int64s, locations: Int64s) -> Found:
        """See :class:`KeyIndex`."""
        del locations
        return self.find(number)

    def put(self, number: Int64s, locations: Int64s) -> None:
        """See :class:`KeyIndex`."""
        self._location[number] = locations

    def drop(self, number: Int64s, locations: Int64s) -> None:
        """See :class:`KeyIndex`."""
        del locations
        self._location[number] = NOWHERE


class HashedKeys:
    """Keys of any type that Arrow can compare.

    Two keys with the same hash are told apart by their columns, which are fetched only for pending rows whose hash occurs in the
    batch. So what a batch costs beyond its own rows is two binary searches per row.

    Parameters
    ----------
    fetch : callable
        Of locations, the key columns of the rows that lie there.
    """

    def __init__(self, fetch: Callable[[Int64s], Sequence[pa.ChunkedArray]]) -> None:
        self._fetch = fetch
        self._hash: Int64s = np.empty(0, dtype=np.int64)
        self._location: Int64s = np.empty(0, dtype=np.int64)

    def find(self, keys: tuple[Sequence[pa.ChunkedArray], Int64s]) -> Found:
        """See :class:`KeyIndex`; `keys` are the key's columns, and a hash of each row's key."""
        columns, hashes = keys
        rows = len(hashes)
        candidates = self._with_hash(np.unique(hashes))
        fetched = self._fetch(candidates) if len(candidates) else None
        both = (
            columns if fetched is None else [_together(one, more) for one, more in zip(columns, fetched, strict=True)]
        )
        codes, size = key_codes(both)
        codes, number_of = _compact(codes[:rows], size, codes[rows:])
        distinct = int(codes.max()) + 1 if rows else 0
        number = np.zeros(distinct, dtype=np.int64)
        number[codes] = hashes
        location = np.full(distinct, NOWHERE, dtype=np.int64)
        mine = number_of >= 0
        location[number_of[mine]] = candidates[mine]
        return Found(codes, number, location)

    def among(self, number: Int64s, locations: Int64s) -> Found:
        """See :class:`KeyIndex`."""
        if len(locations) == 0:
            return Found(locations, locations, locations)
        codes, size = key_codes(self._fetch(locations))
        codes, _ = _compact(codes, size, codes[:0])
        numbers = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        numbers[codes] = number
        return Found(codes, numbers, np.full(len(numbers), NOWHERE, dtype=np.int64))

    def put(self, number: Int64s, locations: Int64s) -> None:
        """See :class:`KeyIndex`; `number` are the keys' hashes."""
        order = np.argsort(number, kind="stable")
        number, locations = number[order], locations[order]
        place = np.searchsorted(self._hash, number)
        self._hash = np.insert(self._hash, place, number)
        self._location = np.insert(self._location, place, locations)

    def drop(self, number: Int64s, locations: Int64s) -> None:
        """See :class:`KeyIndex`."""
        del number
        if len(locations) == 0:
            return
        leaving = np.zeros(int(max(self._location.max(initial=0), locations.max())) + 1, dtype=np.bool_)
        leaving[locations] = True
        stays = ~leaving[self._location]
        self._hash, self._location = self._hash[stays], self._location[stays]

    def _with_hash(self, hashes: Int64s) -> Int64s:
        low, high = np.searchsorted(self._hash, hashes, "left"), np.searchsorted(self._hash, hashes, "right")
        count = high - low
        total = int(count.sum())
        starts = np.repeat(low - (np.cumsum(count) - count), count)
        return self._location[starts + np.arange(total)]


def _together(one: pa.ChunkedArray | pa.Array, more: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    chunks = [chunk for part in (one, more) for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, type=one.type)


def _compact(codes: Int64s, size: int, others: Int64s) -> tuple[Int64s, Int64s]:
    """Number only the codes that occur, and say which of the others got such a number."""
    table = np.full(size, NOWHERE, dtype=np.int64)
    table[codes] = 0
    present = np.flatnonzero(table == 0)
    table[present] = np.arange(len(present))
    return table[codes], table[others]


def ties_within(codes: Int64s, keys: int, time: Int64s | None, newest: Int64s) -> Int64s:
    """Pairs of a batch's rows with one key and one time: its newest, and another that goes."""
    if time is None:
        return np.empty((0, 2), dtype=np.int64)
    winner = np.zeros(keys, dtype=np.int64)
    winner[codes[newest]] = newest
    mine = winner[codes]
    tied = np.flatnonzero((time == time[mine]) & (mine != np.arange(len(codes))))
    return np.stack([mine[tied], tied], axis=1)
